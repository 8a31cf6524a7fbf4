"""Find which drives the drive sets of a tidy table have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaosity.cpusets import parse_cpu_list
from chaosity.store.measurements import Measurements

DrivesByNode = Mapping[int, frozenset[str]]


def drives_by_node_of_sets(
    rows: Measurements, known: Mapping[int, Sequence[str]] | None = None
) -> dict[str, DrivesByNode]:
    """Return drive set -> node -> names of the set's drives at this node.

    Args:
        rows: rows of loads on drives.
        known: node -> names of its drives. They name the drives of a node that were read only
            together, unless some of them were left out of the measurement.

    A set is left out if its drives are unknown: drives of unknown nodes, or the first drives of a
    node of which neither the single drives nor all drives together were measured.
    """
    columns = ["target", "target_kind", "target_nodes", "drives"]
    sets = rows.rows[columns].drop_duplicates("target").sort_values("target")
    names_at = {str(node): sorted(names) for node, names in (known or {}).items()}
    at_node: dict[str, list[str]] = {}
    for name, kind, nodes, _ in sets.itertuples(index=False):
        if kind == "drive":
            at_node.setdefault(str(nodes or ""), []).append(name)
    for _, kind, nodes, number in sets.itertuples(index=False):
        if kind == "all_of_node" and len(at_node.get(str(nodes), [])) < int(number):
            names = names_at.get(str(nodes), [])
            unnamed = [f"{nodes}#{index}" for index in range(int(number))]
            at_node[str(nodes)] = names if len(names) == int(number) else unnamed
    found: dict[str, DrivesByNode] = {}
    for name, kind, nodes, number in sets.itertuples(index=False):
        first = int(number) if kind == "first_of_node" else None
        own = {
            node: frozenset([name] if kind == "drive" else at_node.get(str(node), [])[:first])
            for node in parse_cpu_list(str(nodes or ""))
        }
        if sum(map(len, own.values())) == int(number):
            found[name] = own
    return found

"""Name the configuration of a host by its memory layout, such as `nps4` or `snc2-flat`.

| processor | name |
|---|---|
| AMD EPYC | `nps1`, `nps2`, `nps4`: nodes per socket; `nps0`: a node over both; `l3-as-numa` |
| Intel Xeon | `snc1`, `snc2`, `snc4`: sub-NUMA clusters per socket, `snc1` is clustering off |
| others, or unknown | `1node-per-package`, `2nodes-per-package`, `1-2nodes-per-package` |

Only nodes with processors count. High-bandwidth memory adds `-flat` when it has nodes without
processors beside other nodes of its package, `-cache` when a memory-side cache is present, and
`-hybrid` when both are present (`snc4-flat`). hwloc guesses the kind of memory, and its guess about
a node with processors does not change the name. Slow memory adds nothing, because it is not a
firmware mode.
"""

from __future__ import annotations

from collections import Counter

from chaosity.topology.topology_model import Node, Topology

# NPS4 is AMD's finest mode; a socket with more nodes has a node for each L3 cache.
_MOST_NODES_PER_SOCKET = 4
_ON_PACKAGE_MEMORY = frozenset({"HBM", "MCDRAM"})


def configuration_name(topology: Topology) -> str:
    """Return the name of the host's configuration."""
    with_cpus = [node for node in topology.nodes if node.has_cpus]
    return _layout(topology, with_cpus) + _memory_mode(topology)


def _layout(topology: Topology, with_cpus: list[Node]) -> str:
    model = topology.cpu_model or ""
    per_package = Counter(node.package for node in with_cpus)
    if None in per_package:  # a node that spans packages, or no packages at all
        return "nps0" if "EPYC" in model else f"{_nodes(len(with_cpus))}-over-packages"
    fewest, most = min(per_package.values(), default=0), max(per_package.values(), default=0)
    if fewest == most and "EPYC" in model:
        return f"nps{most}" if most <= _MOST_NODES_PER_SOCKET else "l3-as-numa"
    if fewest == most and "Intel" in model and "Xeon" in model:
        return f"snc{most}"
    return f"{'' if fewest == most else f'{fewest}-'}{_nodes(most)}-per-package"


def _nodes(number: int) -> str:
    return f"{number}node" if number == 1 else f"{number}nodes"


def _memory_mode(topology: Topology) -> str:
    beside = {node.package for node in topology.nodes if node.has_cpus}
    flat = any(
        node.kind in _ON_PACKAGE_MEMORY and not node.has_cpus and node.package in beside
        for node in topology.memory_nodes
    )
    cached = any(node.memory_side_cache_bytes for node in topology.memory_nodes)
    return {(False, False): "", (True, False): "-flat", (False, True): "-cache"}.get(
        (flat, cached), "-hybrid"
    )

"""Make a JSON document with the interleave weights of a host, for the usual sets of workers."""

from __future__ import annotations

from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MeasuredHost, select_node_bandwidths
from chaosity.export.main_matrices import origin_of_export
from chaosity.place_names import node_name, package_name
from chaosity.weights.interleave_weight_advice import PlacementAdvice, advise_interleave_weights

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class InterleaveWeightsExport:
    """Interleave weights of a host."""

    origin: dict[str, str | None]  # see `origin_of_export`
    measured: str  # source of the bandwidths, see `NodeMeasurements.source_text`
    # Name of a set of workers (node0, package1, all) -> its weights.
    sets: dict[str, PlacementAdvice]
    left_out: dict[str, str]  # name of a set of workers -> why it has no weights

    def to_json(self) -> dict[str, object]:
        """Return the document of `chaosity export weights --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            **self.origin,
            "command": f"{self.origin['command']} --json",
            "measured": self.measured,
            "worker_sets": {name: advice.to_json() for name, advice in self.sets.items()},
            "left_out": self.left_out,
        }


def interleave_weights_of_host(host: MeasuredHost, dwp: float = 0.0) -> InterleaveWeightsExport:
    """Return the weights with each node, each package and all nodes as workers.

    Raises:
        UserError: no pair of nodes was measured, `dwp` (data-to-worker proximity) is not in 0 to 1,
            or the host is simulated.
    """
    host.refuse_simulated_values("the kernel")
    measured = select_node_bandwidths(host)
    sets: dict[str, PlacementAdvice] = {}
    left_out: dict[str, str] = {}
    for name, workers in _worker_sets(host).items():
        try:
            sets[name] = advise_interleave_weights(measured.matrix, workers, dwp)
        except UserError as error:
            left_out[name] = error.what
    if not sets:
        raise UserError(next(iter(left_out.values()), "no node has cores"), str(host.folder))
    options = ["--dwp", f"{dwp:g}"] if dwp else []
    origin = origin_of_export(host, "weights", *options)
    return InterleaveWeightsExport(origin, measured.source_text, sets, left_out)


def _worker_sets(host: MeasuredHost) -> dict[str, tuple[int, ...]]:
    """Return name -> nodes: each node with cores, each package, and all; equal sets occur once."""
    nodes = [node.os_index for node in host.topology.initiator_nodes]
    packages = {
        package_name(package.os_index): tuple(node for node in package.nodes if node in nodes)
        for package in host.topology.packages
    }
    named = {node_name(node): (node,) for node in nodes} | packages | {"all": tuple(nodes)}
    first = {workers: name for name, workers in reversed(named.items()) if workers}
    return {name: workers for name, workers in named.items() if first.get(workers) == name}

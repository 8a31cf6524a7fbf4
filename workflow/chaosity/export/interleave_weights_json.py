"""The JSON document of a host with interleave weights, for each set of nodes that may work."""

from __future__ import annotations

from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost, bandwidth_samples
from chaosity.place_names import node_name, package_name
from chaosity.weights.interleave_weight_advice import PlacementAdvice, advise_interleave_weights

_SCHEMA = 1  # the version of the document


@dataclass(frozen=True)
class InterleaveWeightsExport:
    """Interleave weights of a host."""

    origin: dict[str, str | None]  # see `MeasuredHost.origin`
    measured: str  # source of the bandwidths, see `MainMatrix.source`
    # Name of a set of workers (node0, package1, all) -> its weights.
    sets: dict[str, PlacementAdvice]
    left_out: dict[str, str]  # name of a set of workers -> why it has no weights

    def to_json(self) -> dict[str, object]:
        """Return the document of `chaosity export weights --json`."""
        return {
            "schema_version": _SCHEMA,
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
    matrix, source = bandwidth_samples(host)
    nodes = [node.os_index for node in host.topology.initiator_nodes]
    named: dict[str, tuple[int, ...]] = {node_name(node): (node,) for node in nodes}
    for package in host.topology.packages:
        own = tuple(node for node in package.nodes if node in nodes)
        named[package_name(package.os_index)] = own
    named["all"] = tuple(nodes)
    sets, left_out = dict[str, PlacementAdvice](), dict[str, str]()
    seen: set[tuple[int, ...]] = {()}
    for name, workers in named.items():
        if workers in seen:  # equal sets occur once
            continue
        seen.add(workers)
        try:
            sets[name] = advise_interleave_weights(matrix, workers, dwp)
        except UserError as error:
            left_out[name] = error.what
    if not sets:
        raise UserError(next(iter(left_out.values()), "no node has cores"), str(host.folder))
    options = ["--dwp", f"{dwp:g}"] if dwp else []
    return InterleaveWeightsExport(host.origin("weights", *options), source, sets, left_out)

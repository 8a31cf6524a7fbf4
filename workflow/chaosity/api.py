"""The map of a host for other programs: measured values, predictions, and advice on placement.

Example::

    from chaosity import api

    machine = api.open_map("results/server7/nps4")
    machine.bandwidth(0, 4)  # Estimate(median=1.73e+10, low=1.71e+10, high=1.75e+10, n=3)
    best, *others = machine.advise(api.Request(cores=8, memory_bytes=40 << 30)).places
    print(best.commands["numactl"], best.bandwidth.median, best.bandwidth.limited_by)

All rates are in bytes per second. All latencies are in nanoseconds. Nodes and processing units have
the numbers of the operating system. A `UserError` says in one sentence what is wrong and what would
be right. Names of this module without a leading underscore change only with a new major version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from chaosity.advice.advise import (
    DEFAULT_NUMBER_OF_PLACES,
    Advice,
    AdvisedPlace,
    ShareKeptInMemory,
    advise,
)
from chaosity.advice.machine_map import ExpectedValue, MachineMap
from chaosity.advice.open_map import open_described_machine
from chaosity.advice.open_map import open_map as open_machine_map
from chaosity.advice.requests import (
    BANDWIDTH,
    LATENCY,
    Goal,
    Place,
    Request,
    RunningLoad,
    check_kernel,
    check_place_parts,
)
from chaosity.errors import UserError
from chaosity.export.main_matrices import (
    DRIVE_BANDWIDTH,
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    read_main_matrices,
    read_measured_host,
)
from chaosity.place_names import node_name
from chaosity.result_folders import find_results_folder
from chaosity.statistics.estimates import Estimate
from chaosity.topology.topology_model import Topology

__all__ = [
    "Advice",
    "AdvisedPlace",
    "Estimate",
    "ExpectedValue",
    "Goal",
    "HostMap",
    "Place",
    "Request",
    "RunningLoad",
    "ShareKeptInMemory",
    "UserError",
    "open_machine",
    "open_map",
]


@dataclass(frozen=True)
class HostMap:
    """The measured and predicted values of a host in one configuration.

    Attributes:
        machine: the model of the host, fitted to its results.
        folder: the folder of the results; None for a described machine, of which nothing was
            measured.
    """

    machine: MachineMap
    folder: Path | None = None

    @property
    def topology(self) -> Topology:
        """Return the topology of the host."""
        return self.machine.topology

    @property
    def is_simulated(self) -> bool:
        """Return whether the host is simulated, which means that the host does not exist."""
        return self.machine.is_simulated

    @property
    def drives(self) -> tuple[str, ...]:
        """Return the names of the drives."""
        return tuple(self.machine.drives)

    @property
    def stale_components(self) -> tuple[str, ...]:
        """Return the components that changed after points that depend on them were measured."""
        return self.machine.stale_components

    @property
    def unusable(self) -> str:
        """Return why the results are unusable, and what to do; "" for usable results.

        If the text is not empty, no number of this map is reliable. For example, results are
        unusable if other programs disturbed most measurements.
        """
        return self.machine.unusable

    @cached_property
    def _matrices(self) -> Mapping[str, MainMatrix]:
        return read_main_matrices(read_measured_host(self.folder)) if self.folder else {}

    def _measured(self, quantity: str, node: int, target: str) -> Estimate | None:
        cells = self._matrices[quantity].cell_of if quantity in self._matrices else {}
        return cells[node, target].estimate if (node, target) in cells else None

    def bandwidth(self, node: int, memory: int) -> Estimate | None:
        """Return the measured bandwidth from all cores of a node to the memory of a node.

        Return None if this path was not measured, for example because a budget left it out.
        `expected` predicts the bandwidth of a path that was not measured.
        """
        return self._measured(MEMORY_BANDWIDTH, node, node_name(memory))

    def latency(self, node: int, memory: int) -> Estimate | None:
        """Return the latency from a core of a node to a node's memory; None if not measured."""
        return self._measured(MEMORY_LATENCY, node, node_name(memory))

    def drive_bandwidth(self, node: int, drive: str) -> Estimate | None:
        """Return the measured bandwidth at which a node reads a drive; None if not measured."""
        return self._measured(DRIVE_BANDWIDTH, node, drive)

    def expected(
        self,
        place: Place,
        *,
        kernel: str = "read",
        latency: bool = False,
        beside: Sequence[RunningLoad] = (),
    ) -> ExpectedValue:
        """Return the expected bandwidth (with `latency`, the latency) of a program in a place.

        Args:
            place: where the program has its cores, its pages and its drives.
            kernel: how the program accesses memory, see `RunningLoad`.
            latency: says whether to return the memory latency in ns instead of the bandwidth.
            beside: the loads that run at the same time.

        Raises:
            UserError: the machine lacks a named part, or no measurements determine the value.
        """
        check_place_parts(place, self.topology, self.machine.drives)
        check_kernel(kernel, "kernel")
        for running in beside:
            check_place_parts(running.place, self.topology, self.machine.drives)
        metric = LATENCY if latency else BANDWIDTH
        loads = self.machine.loads("program", place, kernel, metric=metric)
        return self.machine.expected_value(loads, self.machine.running_loads(beside))

    def advise(self, request: Request, places: int = DEFAULT_NUMBER_OF_PLACES) -> Advice:
        """Return the best places for a program, the best place first, see `advice.advise`.

        Raises:
            UserError: the request is wrong, the host has too few free cores, too few drives or too
                little memory, or the measurements do not determine the value of any place.
        """
        return advise(self.machine, request, places)


def open_map(folder: str | Path) -> HostMap:
    """Return the map of a host. The first call for a host fits the model, which can take minutes.

    Args:
        folder: ``results/HOST/CONFIGURATION``, or ``results/HOST`` with one configuration.

    Raises:
        UserError: the folder has no results of a run, or no bandwidth of memory was measured.
    """
    found = find_results_folder(Path(folder))
    return HostMap(open_machine_map(found), found)


def open_machine(description: str | Path, topology: str | Path) -> HostMap:
    """Return the map of a described machine, such as the output of ``chaosity fit``.

    Args:
        description: the YAML file of the description.
        topology: the hwloc XML file of the machine's topology.

    Raises:
        UserError: a file cannot be read, or its content is wrong.
    """
    return HostMap(open_described_machine(Path(description), Path(topology)))

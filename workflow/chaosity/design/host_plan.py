"""The plan of a host: its points in random order within blocks, and how long they take."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaosity.benchmarks import open_benchmarks
from chaosity.components import drive_component_name
from chaosity.config import load_experiment, suggest_allowed
from chaosity.design.endpoints import DriveRef
from chaosity.design.expand_points import Point, PointExpansion
from chaosity.design.host_resources import HostResources
from chaosity.design.metric_references import add_metric_references
from chaosity.design.placement_targets import WeightsLookup
from chaosity.design.sampling import evenly_spread
from chaosity.errors import UserError
from chaosity.records import write_if_changed
from chaosity.topology.host_model import Topology

# Size of the file that stands in where a host has no NVMe drive.
DEFAULT_FILE_BYTES = 1024 * 1024 * 1024
# Where it lies on a host that is not this machine: a real file system, kept over reboots (hier(7)).
SCRATCH = Path("/var/tmp/chaosity")


@dataclass(frozen=True)
class PlannedHost:
    """A host of the inventory: its name, its variables and what was discovered.

    `local` tells whether it is this machine, where files may lie beside the results.
    """

    name: str
    configuration: str
    topology: Topology
    variables: Mapping[str, Any] = field(default_factory=dict)
    local: bool = True

    def drives(self, results: Path) -> tuple[DriveRef, ...]:
        """The drives to measure: NVMe, those the inventory adds, or a file in their place.

        Raises:
            UserError: ``chaosity_destructive_drives`` names a drive that is not there.
        """
        destructive = set(self.variables.get("chaosity_destructive_drives", []))
        found = [
            DriveRef(
                component=drive_component_name(drive),
                node=drive.node,
                pci=drive.pci,
                serial=drive.serial,
                size_bytes=drive.size_bytes,
                link_bytes_per_second=drive.link_bytes_per_second,
                destructive=any(drive.serial and one.endswith(drive.serial) for one in destructive),
            )
            for drive in self.topology.drives
            if drive.name is not None and drive.pci is not None
        ]
        for path in self.variables.get("chaosity_extra_drives", []):
            found.append(
                DriveRef(extra_component(path), None, path=path, destructive=path in destructive)
            )
        return tuple(found) or self.files(results)

    def files(self, results: Path) -> tuple[DriveRef, ...]:
        """The files that stand in for drives: one, or as many as the inventory says."""
        given = self.variables.get("chaosity_storage_file", {})
        usual = results / self.name / "scratch" if self.local else SCRATCH
        folder = Path(given.get("directory", usual)).absolute()
        size = given.get("bytes", DEFAULT_FILE_BYTES)
        names = [f"file{index}" for index in range(given.get("count", 1))]
        return tuple(
            DriveRef(name, None, file=str(folder / name), size_bytes=size) for name in names
        )


def extra_component(path: str) -> str:
    """Component name of a block device that the inventory adds by its path."""
    return "disk-" + re.sub(r"[^A-Za-z0-9_]+", "-", Path(path).name)


@dataclass(frozen=True)
class HostPlan:
    """What is to be measured on one host.

    `replicates` is what the config asks for; points of some experiments are measured more often,
    see `replicate_numbers`.
    """

    host: PlannedHost
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    replicates: int
    seed: int
    stopping: Mapping[str, Any] = field(default_factory=dict)

    @property
    def estimated_seconds(self) -> float:
        """How long all points and replicates take."""
        return sum(
            len(replicate_numbers(point)) * point["estimated_seconds"] for point in self.points
        )

    @property
    def digest(self) -> str:
        """A fingerprint of all points, their order, and what their derived metrics are ratios to.

        It stands in plan.json, so the tidy table is made anew when one of these changes.
        """
        listed = [
            [point["definition"], point["orders"], point.get("relative")] for point in self.points
        ]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """Points, replicates and time, in all and of each experiment."""
        experiments: dict[str, dict[str, Any]] = {}
        for point in self.points:
            one = experiments.setdefault(
                point["experiment"], {"points": 0, "measurements": 0, "estimated_seconds": 0.0}
            )
            number = len(replicate_numbers(point))
            one["points"] += 1
            one["measurements"] += number
            one["estimated_seconds"] += number * point["estimated_seconds"]
        return {
            "host": self.host.name,
            "configuration": self.host.configuration,
            "points": len(self.points),
            "replicates": self.replicates,
            "measurements": sum(len(replicate_numbers(point)) for point in self.points),
            "estimated_seconds": self.estimated_seconds,
            "experiments": experiments,
            "notes": list(self.notes),
        }

    def write(self, folder: Path, *, points: bool) -> None:
        """Write ``plan.json`` and, when they are needed, ``points/<experiment>/<point>.json``.

        Files are touched only when the plan has changed.

        Args:
            folder: of the host and configuration.
            points: whether to write the points too, which a dry run does not need.
        """
        # What the report says of how it was measured is what this run was told, not the defaults.
        told = {"config": {"seed": self.seed, "stopping": self.stopping}, "digest": self.digest}
        write_if_changed(folder / "plan.json", json.dumps({**self.summary(), **told}) + "\n")
        done = folder / "points" / "digest"
        if not points or (done.exists() and done.read_text() == self.digest):
            return
        shutil.rmtree(folder / "points", ignore_errors=True)
        for experiment in {point["experiment"] for point in self.points}:
            (folder / "points" / experiment).mkdir(parents=True)
        for point in self.points:
            path = folder / "points" / point["experiment"] / f"{point['point']}.json"
            path.write_text(json.dumps(point, indent=1) + "\n", encoding="utf-8")
        done.write_text(self.digest)  # last, so that a plan cut short is written again


def replicate_numbers(point: Point) -> range:
    """Numbers of the replicates of a planned point: 1, 2, ..."""
    return range(1, 1 + len(point["orders"]))


def in_order(points: Sequence[Point], replicates: Sequence[int], seed: int) -> list[Point]:
    """Give each point its place in the random order of every replicate block.

    All of replicate 1 comes before all of replicate 2, so that drift of the host falls on whole
    blocks, and the order within a block is a seeded permutation of its own. The last blocks hold
    only the points that are measured that often.

    Args:
        points: all points of a host.
        replicates: how often each is measured.
        seed: of the permutations.
    """
    orders: list[list[int]] = [[] for _ in points]
    before = 0
    for block in range(max(replicates, default=0)):
        own = [order for order, number in zip(orders, replicates, strict=True) if number > block]
        places = list(range(len(own)))
        random.Random(f"{seed}/{block}").shuffle(places)
        for order, place in zip(own, places, strict=True):
            order.append(before + place)
        before += len(own)
    return [{**point, "orders": order} for point, order in zip(points, orders, strict=True)]


def plan_host(
    host: PlannedHost,
    config: Mapping[str, Any],
    experiments: Sequence[str] | None = None,
    weights: WeightsLookup | None = None,
) -> HostPlan:
    """Expand all experiments of the config for a host.

    Args:
        host: the host with its topology.
        config: the checked config.
        experiments: only these; None for those of the config.
        weights: what was measured of where pages are best put; None for nothing.

    Raises:
        UserError: an experiment or benchmark does not fit this host.
    """
    results = Path(config["results"])
    elements = HostResources(host.topology, host.drives(results))
    expansion = PointExpansion(elements, open_benchmarks(config), config, weights)
    points: list[Point] = []
    often: list[int] = []
    notes: list[str] = []
    for name in config["sample"]:
        if name not in config["experiments"]:
            known = suggest_allowed(name, config["experiments"])
            raise UserError(f"{name!r} is not among the experiments", "config, sample", known)
    for name in experiments or config["experiments"]:
        experiment = load_experiment(name)
        found = expansion.points(experiment)
        if not found:
            notes.append(f"{name}: has no point on this host")
        taken = evenly_spread(found, config["sample"].get(name, len(found)))
        if len(taken) < len(found):
            notes.append(f"{name}: a sample of {len(taken)} of {len(found)} points, evenly spread")
        taken = add_metric_references(experiment, taken, expansion.choices.notes)
        points += [
            {"host": host.name, "configuration": host.configuration, **point} for point in taken
        ]
        replicates = max(config["replicates"], experiment.get("replicates", 1))
        often += [replicates] * len(taken)
    if not points:
        listed = ", ".join(experiments or config["experiments"])
        where, why = f"host {host.name}: {listed}", "; ".join(expansion.notes)
        raise UserError("no experiment has a point on this host", where, why or None)
    ordered = in_order(points, often, config["seed"])
    notes = [*expansion.notes, *notes]
    replicates, seed = config["replicates"], config["seed"]
    return HostPlan(host, tuple(ordered), tuple(notes), replicates, seed, config["stopping"])

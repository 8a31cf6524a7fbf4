"""Plan the points of a host in random order within blocks, and estimate their time.

A derived metric is the value of a load divided by the value of the load's reference. The file of an
experiment says, for example, `to: {policy: uniform_workers}, same: [workers, kernel]`. The
reference of a load has the role of the load, the levels in `to`, and in the columns `same` the
values of the load. So the references are found by a join of the table of loads with itself.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from chaosity.components import drive_component_name
from chaosity.design.benchmark_templates import load_benchmark_of_each_category
from chaosity.design.host_resources import HostResources
from chaosity.design.point_expansion import PointExpansion
from chaosity.design.samples import PlanNotes, pick_evenly_spread
from chaosity.design.selectors import WeightsLookup
from chaosity.documents.config import Config
from chaosity.documents.experiments import ExperimentDocument, RelativeMetric
from chaosity.documents.inventory import HostVariables
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.place_names import PlaceName
from chaosity.records.record_files import file_has_text, write_if_changed
from chaosity.records.record_format import (
    DriveFacts,
    ExpandedPoint,
    Load,
    MetricRatio,
    Point,
    PointKey,
    PointStoppingRule,
    point_key,
)
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive

LoadInPoint = tuple[ExpandedPoint, Load]


def add_references_to_points(
    experiment: ExperimentDocument, points: Sequence[ExpandedPoint], notes: PlanNotes
) -> list[ExpandedPoint]:
    """Return the points with a new key `relative` that has their derived metrics and references.

    No load is added, since a reference is the name of a load of one of the points.

    `points` are all points of the experiment on one host. The function adds a note to `notes` that
    says how many loads have no reference.

    Raises:
        UserError: a named column or metric does not exist, or a load has several possible
            references.
    """
    if "relative" not in experiment:
        return list(points)
    found: dict[str, list[MetricRatio]] = {point["point"]: [] for point in points}
    for number, entry in enumerate(experiment["relative"]):
        where = f"workflow/experiments/{experiment['experiment']}.yaml, relative.{number}"
        role = entry["load"]
        loads = [(p, load) for p in points for load in p["loads"] if load["role"] == role]
        for _, load in loads:
            _check_metrics_of_entry(entry, load, where)
        metrics = list(_derived_metrics_of_entry(entry, loads, where))
        for point, metric in metrics:
            found[point["point"]].append(metric)
        if missing := [metric["reason"] for _, metric in metrics if "reason" in metric]:
            notes.add_note(
                f"{experiment['experiment']}, {entry['name']}: {len(missing)} of {len(metrics)}"
                f" values have {missing[0].removeprefix('there is ')}"
            )
    return [{**point, "relative": found[point["point"]]} for point in points]


def _check_metrics_of_entry(entry: RelativeMetric, load: Load, where: str) -> None:
    """Raise an error unless a load has the metrics of an entry, and they have the right kind."""
    metric, metrics, rate = entry["metric"], load["metrics"], entry.get("per")
    check_name_is_allowed(metric, metrics, f"{entry['load']} has no metric {metric!r}", where)
    if "by_node" in metrics[metric]:
        remedy = "a ratio needs a metric with a single value"
        raise UserError(f"{metric} has a value for each node", where, remedy)
    if rate is not None:
        check_name_is_allowed(rate, metrics, f"{entry['load']} has no rate {rate!r}", where)
        if "counter" not in metrics[metric]:
            remedy = "choose a metric from a processor counter"
            raise UserError(f"{metric} is not a count", where, remedy)


def _derived_metrics_of_entry(
    entry: RelativeMetric, loads: Sequence[LoadInPoint], where: str
) -> Iterator[tuple[ExpandedPoint, MetricRatio]]:
    """Yield the derived metric of each load, with its reference or why it has no reference."""
    name, metric_name = entry["name"], entry["metric"]
    if "per" in entry:  # the metric is a count, divided by the load's own work
        for point, load in loads:
            own = load["name"]
            yield point, {"name": name, "load": own, "metric": metric_name, "per": entry["per"]}
        return
    rows = [_columns_of_load(*pair) for pair in loads]
    known = set[str]().union(*rows)
    for column in (*entry["to"], *entry["same"]) if rows else ():
        check_name_is_allowed(column, known, f"{entry['load']} has no column {column!r}", where)
    keys = [tuple(row.get(column) for column in entry["same"]) for row in rows]
    wanted = {column: str(level) for column, level in entry["to"].items()}
    references: dict[tuple[str | None, ...], list[LoadInPoint]] = defaultdict(list)
    for pair, row, key in zip(loads, rows, keys, strict=True):
        if wanted.items() <= row.items():
            references[key].append(pair)
    condition = ", ".join(f"{column} {level}" for column, level in wanted.items())
    for (point, load), key in zip(loads, keys, strict=True):
        metric: MetricRatio = {"name": name, "load": load["name"], "metric": metric_name}
        if "of_means" in entry:
            metric["of_means"] = True
        match references.get(key, []):
            case []:
                metric["reason"] = f"there is no reference with {condition}"
            case [(other, reference)]:
                metric["to"] = {"point": other["point"], "load": reference["name"]}
            case several:
                listed = ", ".join(
                    other["point"] + (f" ({one['name']})" if one["name"] != entry["load"] else "")
                    for other, one in several[:4]
                )
                raise UserError(
                    f"{entry['name']} of {point['point']} has {len(several)} possible"
                    f" references: {listed}{', ...' if len(several) > 4 else ''}",
                    where,
                    "name more columns in `same`",
                )
        yield point, metric


def _columns_of_load(point: ExpandedPoint, load: Load) -> dict[str, str]:
    """Return the columns that `to` and `same` may name; a factor hides a column with its name."""
    initiator, target = load["initiator"], load["target"]
    columns: dict[str, Any] = {
        "initiator": initiator["name"],
        "initiator_kind": initiator["kind"],
        "threads": initiator["threads"],
        "target": target["name"],
        "target_kind": target["kind"],
        "relation": target["relation"],
        "kernel": load["kernel"],
        **load["levels"],
        **point["factors"],
    }
    return {name: str(level) for name, level in columns.items()}


# Size of the file that replaces a drive on a host without NVMe drives.
_DEFAULT_REPLACEMENT_FILE_BYTES = 1024 * 1024 * 1024
# Folder of the file that replaces a drive on a remote host. The folder /var/tmp is in a file system
# on a disk, and a reboot keeps its files (hier(7)).
_REMOTE_SCRATCH_FOLDER = Path("/var/tmp/chaosity")
# Folder in which udev makes links that name a drive by its model and serial number.
_DRIVE_LINKS = "/dev/disk/by-id"


class PlanCounts(TypedDict):
    """The number of points, the number of measurements, and their estimated time."""

    points: int
    measurements: int
    estimated_seconds: float


class PlanSummary(PlanCounts):
    """The content of plan.json: numbers of points and measurements, and the estimated time."""

    host: str
    configuration: str
    replicates: int
    experiments: dict[str, PlanCounts]
    notes: list[str]


@dataclass(frozen=True)
class PlannedHost:
    """A host of the inventory with its name, variables and discovered topology.

    `local` says whether the host is this machine. Only on this machine can files beside the results
    replace drives.
    """

    name: str
    configuration: str
    topology: Topology
    variables: HostVariables = field(default_factory=HostVariables)
    local: bool = True

    @property
    def is_simulated(self) -> bool:
        """Return whether the host does not exist and its records come from a description."""
        return "chaosity_simulated" in self.variables

    def drives_to_measure(self, results: Path) -> tuple[DriveFacts, ...]:
        """Return NVMe drives and drives that the inventory names, or files that replace drives.

        On this machine, files that replace drives are below `results`. A simulated host has no
        files that replace drives.
        """
        nvme = [drive for drive in self.topology.drives if drive.name and drive.pci is not None]
        extra = self.variables.get("chaosity_extra_drives", [])
        named = self.variables.get("chaosity_destructive_drives", [])
        where = f"host {self.name}, chaosity_destructive_drives"
        destructive = [_named_drive(name, nvme, where) for name in named if name not in extra]
        found = [
            _drive_facts(
                drive_component_name(drive),
                drive.node,
                pci=drive.pci,
                serial=drive.serial,
                size_bytes=drive.size_bytes,
                link_bytes_per_second=drive.link_bytes_per_second,
                destructive=drive in destructive or None,
            )
            for drive in nvme
        ]
        for path in extra:
            name = re.sub(r"[^A-Za-z0-9_]+", "-", Path(path).name)
            component = str(PlaceName("disk", address=name))
            found.append(
                _drive_facts(component, None, path=path, destructive=path in named or None)
            )
        return tuple(found) or (() if self.is_simulated else self._files_for_drives(results))

    def _files_for_drives(self, results: Path) -> tuple[DriveFacts, ...]:
        """Return the files that replace drives: as many as the inventory says, or else one."""
        given = self.variables.get("chaosity_storage_file", {})
        usual = results / self.name / "scratch" if self.local else _REMOTE_SCRATCH_FOLDER
        folder = Path(given.get("directory", usual)).absolute()
        size = given.get("bytes", _DEFAULT_REPLACEMENT_FILE_BYTES)
        names = [str(PlaceName("file", (index,))) for index in range(given.get("count", 1))]
        return tuple(
            _drive_facts(name, None, file=str(folder / name), size_bytes=size) for name in names
        )


def _drive_facts(component: str, node: int | None, **facts: object) -> DriveFacts:
    """Return a drive in the form of points; `facts` has further keys, without unknown facts."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return cast(DriveFacts, {"node": node, "component": component, **known})


def _named_drive(name: str, drives: Sequence[NvmeDrive], where: str) -> NvmeDrive:
    """Return the only drive that has a name from `chaosity_destructive_drives`."""
    # A name is a serial number, or udev's name below /dev/disk/by-id. Udev's name is
    # ``nvme-MODEL_SERIAL``; newer versions of udev add ``_NAMESPACE``. Complete names are compared,
    # since one serial number can be the end of another. A name of a drive with several namespaces
    # is refused, since the name would mean several drives.
    folder, _, link = name.rpartition("/")
    serials = set()
    for drive in drives:
        usual = f"nvme-{_udev_link_text(drive.model or '')}_{_udev_link_text(drive.serial or '')}"
        links = (usual, f"{usual}_{str(drive.name).rpartition('n')[2]}")
        by_link = drive.model and folder in ("", _DRIVE_LINKS) and _udev_link_text(link) in links
        if drive.serial and (name == drive.serial or by_link):
            serials.add(drive.serial)
    matching = [drive for drive in drives if drive.serial in serials]
    if len(matching) == 1:
        return matching[0]
    remedy = f"give a drive's serial number, or its name nvme-MODEL_SERIAL below {_DRIVE_LINKS}"
    if matching:
        names = ", ".join(str(drive.name) for drive in matching)
        raise UserError(f"{name!r} can mean several drives ({names})", where, remedy)
    found = ", ".join(drive.serial for drive in drives if drive.serial) or "none"
    what = f"{name!r} names no drive of this host"
    raise UserError(what, where, f"{remedy}; serial numbers of this host: {found}")


def _udev_link_text(text: str) -> str:
    """Return a text with ``_`` for spaces and most punctuation, as udev writes it."""
    return re.sub(r"[^A-Za-z0-9#+.:=@-]+", "_", text.strip())


def _count_points(points: Iterable[Point]) -> PlanCounts:
    listed = list(points)
    return {
        "points": len(listed),
        "measurements": sum(len(point["orders"]) for point in listed),
        "estimated_seconds": sum(
            len(point["orders"]) * point["estimated_seconds"] for point in listed
        ),
    }


@dataclass(frozen=True)
class HostPlan:
    """The points to measure on one host.

    `replicates` is the number of measurements of each point in the config. Some experiments have
    more replicates than the config. `left_out` are the points that a run with a budget does not
    measure.
    """

    host: PlannedHost
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    replicates: int
    seed: int
    stopping: Mapping[str, PointStoppingRule] = field(default_factory=dict)
    left_out: tuple[Point, ...] = ()

    @property
    def points_fingerprint(self) -> str:
        """Return a fingerprint of the definitions, orders and reference loads of all points.

        plan.json contains the fingerprint, so each change of definitions, orders or references
        makes the tidy table anew.
        """
        listed = [[p["definition"], p["orders"], p.get("relative")] for p in self.points]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]

    def summarize_plan(self) -> PlanSummary:
        """Return numbers of points and measurements and their time, in total and by experiment."""
        experiments = dict.fromkeys(point["experiment"] for point in self.points)
        return {
            "host": self.host.name,
            "configuration": self.host.configuration,
            "points": len(self.points),
            "replicates": self.replicates,
            **_count_points(self.points),
            "experiments": {
                name: _count_points(point for point in self.points if point["experiment"] == name)
                for name in experiments
            },
            "notes": list(self.notes),
        }

    def only_measurements(self, measurements: Sequence[PointKey]) -> HostPlan:
        """Return a plan with only the given measurements (experiment, point), in this order.

        The n-th occurrence of a point in `measurements` is replicate n of this point. Points that
        the plan does not have are ignored.
        """
        orders: dict[PointKey, list[int]] = {}
        for position, key in enumerate(measurements):
            orders.setdefault(key, []).append(position)
        chosen: list[Point] = []
        left_out: list[Point] = []
        for point in self.points:
            own = orders.get(point_key(point), [])
            (chosen if own else left_out).append({**point, "orders": own})
        note = f"budget: {len(chosen)} of {len(self.points)} combinations are measured"
        notes = (*self.notes, note) if left_out else self.notes
        return replace(self, points=tuple(chosen), notes=notes, left_out=tuple(left_out))

    def plan_json_text(self) -> str:
        """Return the content of ``plan.json``."""
        # plan.json has the config, since the report shows the config of this run.
        config = {"seed": self.seed, "stopping": self.stopping}
        own = {**self.summarize_plan(), "config": config, "digest": self.points_fingerprint}
        return json.dumps(own)

    def write_plan(self, folder: Path, *, points: bool) -> None:
        """Write ``plan.json`` and, with `points`, ``points/<experiment>/<point>.json``.

        Files are written only if the plan has changed. `folder` is
        ``results/<host>/<configuration>``. A dry run does not need the files of the points.
        """
        write_if_changed(folder / "plan.json", self.plan_json_text() + "\n")
        done = folder / "points" / "digest"
        if not points or file_has_text(done, self.points_fingerprint):
            return
        shutil.rmtree(folder / "points", ignore_errors=True)
        for experiment in {point["experiment"] for point in self.points}:
            (folder / "points" / experiment).mkdir(parents=True)
        for point in self.points:
            path = folder / "points" / point["experiment"] / f"{point['point']}.json"
            path.write_text(json.dumps(point, indent=1) + "\n", encoding="utf-8")
        # The fingerprint is written last, so that the next run replaces an incomplete folder.
        done.write_text(self.points_fingerprint)


def positions_in_random_order(replicates: Sequence[int], seed: int) -> list[list[int]]:
    """Return for each point a list with the positions of its replicates in the random order.

    The block of all first replicates comes before the block of all second replicates, so that a
    slow drift of the host affects all points of a block alike. Each block is permuted separately.
    The last blocks have only the points with the most replicates. Positions are numbered over all
    blocks. `replicates` says how often each point is measured, and `seed` determines the
    permutations.
    """
    orders: list[list[int]] = [[] for _ in replicates]
    before = 0
    for block in range(max(replicates, default=0)):
        own = [order for order, number in zip(orders, replicates, strict=True) if number > block]
        places = list(range(before, before + len(own)))
        random.Random(f"{seed}/{block}").shuffle(places)
        for order, place in zip(own, places, strict=True):
            order.append(place)
        before += len(own)
    return orders


def plan_host(
    host: PlannedHost,
    config: Config,
    experiments: Sequence[str] | None = None,
    weights: WeightsLookup | None = None,
) -> HostPlan:
    """Return the plan of the points of experiments on a host.

    `experiments` has names of experiments; None means the experiments in the config. The function
    `weights` returns measured weights for placements of pages; `weights` is None if no weights were
    measured.

    Raises:
        UserError: an experiment or benchmark does not fit this host.
    """
    for name in config["sample"]:
        unknown = f"{name!r} is not among the experiments"
        check_name_is_allowed(name, config["experiments"], unknown, "config, sample")
    resources = HostResources(
        host.topology,
        host.drives_to_measure(Path(config["results"])),
        config["threads"] == "one_per_core",
    )
    expansion = PointExpansion(resources, load_benchmark_of_each_category(config), config, weights)
    points: list[ExpandedPoint] = []
    replicates: list[int] = []
    notes: list[str] = []
    names = experiments or config["experiments"]
    for name in names:
        experiment = load_experiment(name)
        found = expansion.expand_experiment(experiment)
        if not found:
            notes.append(f"{name}: no points on this host")
        taken = pick_evenly_spread(found, config["sample"].get(name))
        if len(taken) < len(found):
            notes.append(f"{name}: a sample of {len(taken)} of {len(found)} points, evenly spread")
        points += add_references_to_points(experiment, taken, expansion.plan_notes)
        often = max(config["replicates"], experiment.get("replicates", 1))
        replicates += [often] * len(taken)
    if not points:
        where, why = (
            f"host {host.name}: {', '.join(names)}",
            "; ".join(expansion.plan_notes.note_texts),
        )
        raise UserError("no experiment has a point on this host", where, why or None)
    seed = config["seed"]
    ordered: list[Point] = [
        {"host": host.name, "configuration": host.configuration, **point, "orders": order}
        for point, order in zip(points, positions_in_random_order(replicates, seed), strict=True)
    ]
    all_notes = (*expansion.plan_notes.note_texts, *notes)
    return HostPlan(host, tuple(ordered), all_notes, config["replicates"], seed, config["stopping"])

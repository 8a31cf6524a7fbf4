"""Simulated machines: results that the public commands make, and tables in memory.

`simulated` is the one way to a folder ``results`` in which hosts have been measured: plan, records,
tidy table and predictions, and the findings of a single host. It is made once and kept for later
runs.

`planned` gives a host in memory. Its plan and true values are computed once, and `table` multiplies
them by the noise of a seed, which is the same as in the records of these runs. So a table takes
milliseconds. This is exact for points with one load, and for chases that run at the same time; the
search for anomalies reads no others. `table_of_records` works for all points.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
import pandas as pd
import yaml
from click.testing import CliRunner

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host, host_component_facts
from chaosity.cli import chaosity
from chaosity.components import drive_component_name, make_component_documents
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import Config, read_config
from chaosity.documents.inventory import HostVariables
from chaosity.documents.machines import Fault, MachineDescription
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from chaosity.records.record_files import replicate_numbers
from chaosity.records.record_format import (
    FAILED,
    SIMULATED,
    VALID,
    MetricSourceWithUpperBound,
    Point,
    Record,
)
from chaosity.simulation.machine_description import firmware_topology, read_machine_description
from chaosity.simulation.machine_model import MachineModel, true_values
from chaosity.simulation.simulated_records import draw_noise, simulate_replicate
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.store.tidy_table_from_records import (
    MISSING,
    ReplicateOutcome,
    status_and_values_of_record,
    tidy_rows_of_derived_metrics,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, Row, rows_to_table
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, configuration_name, topology_to_json
from inventories import OWN_TOPOLOGIES as OWN_TOPOLOGIES
from inventories import SHIPPED_MACHINES as SHIPPED_MACHINES
from inventories import SMALL_MACHINES as SMALL_MACHINES
from inventories import machine_file, topology_file
from quick_files import quick_files
from table_rows import DAY, in_types_of_file

# Below build/, where both workers of pytest-xdist and later runs find them.
KEPT = ROOT / "build/simulated_machines"
# Rooms that no command of `make_results` uses; test_rooms.py forbids it.
_WITHOUT_EFFECT = {"compare", "export", "figures", "health", "report", "slurm"}
# Stands for the folder of an inventory, which depends on the content of its files.
_HERE = "FOLDER_OF_INVENTORY"

TODAY = date(2026, 11, 22)


def simulated(
    machine: str | Mapping[str, Any],
    experiments: Sequence[str],
    faults: Iterable[Mapping[str, Any]] = (),
    seed: int = 1,
    *,
    hosts: Sequence[str] = ("server",),
    topology: str | None = None,
    **config: Any,
) -> Path:
    """Return the folder ``results`` of equal simulated hosts; tests copy it before they change it.

    Args:
        machine: name of a file in tests/data/machines or machines, or a description as such a file.
        experiments: names of the experiments.
        faults: faults of the hosts; one with the key ``host`` is a fault of that host only.
        seed: of the noise and of the random order.
        hosts: their names. Equal hosts differ by their noise.
        topology: name of a topology beside the machines; default: that of the machine.
        config: other keys of the config, such as ``replicates`` (default: 3) or ``levels``.
    """
    own = _description(machine) if isinstance(machine, str) else machine
    own = {**own, "seed": seed, "faults": [*own.get("faults", ()), *map(dict, faults)]}
    name = own["simulated_machine"]
    xml = topology_file(topology or name)
    files = {
        "topology.xml": xml.read_text(),
        f"{name}.yaml": yaml.safe_dump(own),
        "hosts.yml": yaml.safe_dump(_inventory(hosts, name)),
        "config.yaml": yaml.safe_dump(
            {"experiments": list(experiments), "replicates": 3, "seed": seed, **config}
        ),
    }
    return _made_once(files)


def configuration_folder(results: Path, host: str = "server") -> Path:
    """Return ``results/HOST/CONFIGURATION`` of a host with one configuration."""
    [plan] = results.glob(f"{host}/*/plan.json")
    return plan.parent


def run_chaosity(*words: str | Path) -> str:
    """Run a command of ``chaosity`` in this process and return its standard output."""
    with quick_files():
        done = CliRunner().invoke(chaosity, [str(word) for word in words])
    assert done.exit_code == 0, f"{words}: {done.output}{done.exception!r}"
    return done.stdout


def refusal_by_chaosity(*words: str | Path) -> str:
    """Run a command of ``chaosity`` that must refuse what it is given; return its sentence."""
    done = CliRunner().invoke(chaosity, [str(word) for word in words])
    assert isinstance(done.exception, UserError), f"{words}: {done.output}{done.exception!r}"
    return str(done.exception)


def _description(name: str) -> Mapping[str, Any]:
    """Return the description of a machine that has a file."""
    description: Mapping[str, Any] = yaml.safe_load(machine_file(name).read_text())
    return description


def _inventory(hosts: Sequence[str], machine: str) -> dict[str, Any]:
    """Return an inventory of equal simulated hosts, whose files are beside it."""
    variables = {
        "ansible_connection": "local",
        "chaosity_topology": f"{_HERE}/topology.xml",
        "chaosity_simulated": f"{_HERE}/{machine}.yaml",
    }
    return {"all": {"hosts": dict.fromkeys(hosts, variables)}}


def _made_once(files: Mapping[str, str]) -> Path:
    """Return the results of a config, inventory, machine and topology; make them if need be."""
    arguments = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / arguments
    made_by = folder / "product.sha256"
    with (KEPT / f"{arguments}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_by.exists() or made_by.read_text() != product_digest():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, text in files.items():
                (folder / name).write_text(text.replace(_HERE, str(folder)))
            make_results(folder)
            made_by.write_text(product_digest())
    return folder / "results"


def make_results(folder: Path) -> None:
    """Make ``results`` from the config and the inventory in a folder, as the workflow does."""
    config, inventory = folder / "config.yaml", folder / "hosts.yml"
    results = folder / "results"
    run_chaosity("simulate", "--config", config, "--inventory", inventory, "--results", results)
    plans = sorted(folder.glob("results/*/*/plan.json"))
    for plan in plans:
        make_tables(plan.parent, findings=len(plans) == 1)


def pretend_measured(folder: Path) -> None:
    """Let the simulated records below a folder pass for measured ones, which exports require."""
    for digests in folder.rglob("SHA256SUMS"):
        digests.unlink()  # else the change is noticed
    for path in folder.rglob("rep*.json"):
        record = json.loads(path.read_text())
        record.pop("origin", None)  # the file may be a hard link of an attempt that was changed
        path.write_text(json.dumps(record))


def make_tables(folder: Path, *, findings: bool = True) -> None:
    """Make tables, predictions and perhaps findings from the records of a host's configuration."""
    table, history = folder / "measurements.parquet", folder / "history.parquet"
    run_chaosity("tidy", folder / "plan.json", "--output", table, "--history", history)
    if findings:
        (folder / "findings.json").write_text(run_chaosity("anomalies", table, "--json"))
    if json.loads((folder / "plan.json").read_text()).get("left_out"):
        run_chaosity("predict", folder)


@cache
def product_digest() -> str:
    """Return a digest of the product's files that can change the results of a machine."""
    digest = hashlib.sha256()
    for folder in (ROOT / "workflow", ROOT / "templates"):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.suffix in (".py", ".yaml", ".j2") and not _WITHOUT_EFFECT & {*name.parts}:
                digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def shipped_topology(name: str) -> Topology:
    """Return a topology that has a file."""
    return discover_topology(str(topology_file(name)))


def shipped_machine(name: str, topology: Topology) -> MachineDescription:
    """Return the description of a machine that has a file."""
    return read_machine_description(machine_file(name), topology)


_default_config = cache(read_config)
_PLANS: dict[str, tuple[Point, ...]] = {}


def _points_of(host: PlannedHost, config: Config) -> tuple[Point, ...]:
    """Return the planned points of a host, which most faults do not change; planned once."""
    about = [host.name, host.configuration, topology_to_json(host.topology), host.variables]
    key = json.dumps([*about, config], sort_keys=True)
    if key not in _PLANS:
        _PLANS[key] = tuple(plan_host(host, config).points)
    return _PLANS[key]


@dataclass(frozen=True)
class SimulatedHost:
    """A simulated host and its plan.

    Attributes:
        machine: its description.
        topology: its topology, as its firmware shows it.
        points: the planned points.
        name: its name, on which its random numbers and the fault of one host of a fleet depend.
    """

    machine: MachineDescription
    topology: Topology
    points: tuple[Point, ...]
    name: str

    @classmethod
    def planned(
        cls,
        machine: MachineDescription,
        topology: Topology,
        faults: Iterable[Fault],
        config: Config | None = None,
        name: str = "host",
        *,
        all_points: bool = False,
    ) -> SimulatedHost:
        """Return a machine with these faults and no others, planned by a config.

        Without `all_points` it has only the points that the search for anomalies uses.
        """
        faulty = cast(MachineDescription, {**machine, "faults": list(faults)})
        shown = firmware_topology(faulty, topology, name, TODAY)
        variables: HostVariables = {"chaosity_simulated": machine["simulated_machine"]}
        host = PlannedHost(name, configuration_name(topology), shown, variables)
        points = _points_of(host, config or _default_config())
        wanted = points if all_points else filter(_is_read, points)
        return cls(faulty, shown, tuple(wanted), name)

    def where(self, is_wanted: Callable[[Point], bool]) -> SimulatedHost:
        """Return the host with a part of its points."""
        return replace(self, points=tuple(filter(is_wanted, self.points)))

    def with_memory(self, times: float) -> SimulatedHost:
        """Return the host with so many times the bandwidth of its memory controllers."""
        memory: dict[str, Any] = {**self.machine["memory"]}
        memory["package_bytes_per_second"] *= times
        return replace(self, machine=cast(MachineDescription, {**self.machine, "memory": memory}))

    def without_drives_of_several_nodes(self) -> SimulatedHost:
        """Return the host without reads from drives of several nodes: most points of a server."""
        return self.where(lambda point: point["loads"][0]["target"]["kind"] != "all_of_nodes")

    @cached_property
    def model(self) -> MachineModel:
        """The model of the machine."""
        return MachineModel(self.machine, self.topology, self.name, TODAY)

    @cached_property
    def true_table(self) -> Measurements:
        """The tidy table without noise."""
        rows: list[Row] = []
        for point in self.points:
            readings = {
                load: {metric: (value, None) for metric, value in values.items()}
                for load, values in true_values(point, self.model).items()
            }
            for replicate in replicate_numbers(point):
                order = point["orders"][replicate - 1]
                outcome = ReplicateOutcome(VALID, order=order, readings=readings, origin=SIMULATED)
                rows += tidy_rows_of_outcome(point, replicate, outcome)
        return Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))

    def table(
        self,
        seed: int = 1,
        *,
        failed: Mapping[str, str] | None = None,
        missing: Collection[str] = (),
        **columns: object,
    ) -> Measurements:
        """Return the tidy table of a seed; without samples, no row can be "imprecise".

        Args:
            seed: of the noise.
            failed: point -> reason.
            missing: points that are not measured yet.
            columns: other columns, such as the name of the host.
        """
        factors, remarks = zip(*self._factors_and_remarks(seed), strict=True)
        rows, reasons = self.true_table.rows, failed or {}
        status = np.where(rows["point"].isin(reasons), FAILED, VALID).astype(object)
        status[rows["point"].isin(missing)] = MISSING
        return self.true_table.with_columns(
            value=(rows["value"] * np.array(factors)).where(status == VALID),
            remarks=pd.Series(remarks, index=rows.index, dtype=object),
            status=pd.Series(status, index=rows.index, dtype=object),
            reason=rows["point"].map(reasons).astype(object).where(status == FAILED, None),
            measured_at=DAY + "T1" + rows["replicate"].astype(str) + ":00:00.000Z",
            **columns,
        )

    def table_of_records(self, seed: int) -> Measurements:
        """Return the tidy table of a seed, by the records of all its points."""
        rows: list[Row] = []
        records = self.records(seed)
        for point in self.points:
            for replicate, record in enumerate(records[point["experiment"], point["point"]], 1):
                rows += tidy_rows_of_outcome(point, replicate, status_and_values_of_record(record))
        return Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))

    def records(self, seed: int | None = None) -> dict[tuple[str, str], list[Record]]:
        """Return (experiment, point) -> its records; `seed` replaces that of the description."""
        host = self
        if seed is not None:
            host = replace(self, machine={**self.machine, "seed": seed})
        return {
            (point["experiment"], point["point"]): [
                simulate_replicate(point, replicate, host.model)
                for replicate in replicate_numbers(point)
            ]
            for point in self.points
        }

    def table_with_derived_metrics(
        self, records: Mapping[tuple[str, str], Sequence[Record]]
    ) -> Measurements:
        """Return the tidy table of records, with the metrics that the experiments derive."""
        outcomes = {
            key: [status_and_values_of_record(record) for record in own]
            for key, own in records.items()
        }
        rows: list[Row] = []
        for point in self.points:
            own = outcomes[point["experiment"], point["point"]]
            for replicate, outcome in enumerate(own, start=1):
                rows += tidy_rows_of_outcome(point, replicate, outcome)
                rows += tidy_rows_of_derived_metrics(point, replicate, outcomes)
        return Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))

    def findings(self, seed: int) -> Findings:
        """Return what the analysis finds, as for the report."""
        return analyse_host(self.table(seed), self.component_facts)

    @cached_property
    def component_facts(self) -> HostComponentFacts:
        """Packages, models and core kinds, for the search for anomalies."""
        return host_component_facts(self.topology, make_component_documents(self.topology))

    def _factors_and_remarks(self, seed: int) -> Iterator[tuple[float, str | None]]:
        """Yield the factor of each row of the table, and what its record remarks."""
        machine: MachineDescription = {**self.machine, "seed": seed}
        for point in self.points:
            for replicate in replicate_numbers(point):
                noise = draw_noise(point, replicate, machine)
                loads = zip(point["loads"], noise.qualities, noise.samples, strict=True)
                for load, quality, samples in loads:
                    for metric, source in load["metrics"].items():
                        factor = _factor(metric, source, quality, samples)
                        yield factor, "disturbed" if noise.lost else None


def planned(
    machine: str,
    topology: str | None = None,
    faults: Iterable[Fault] | None = (),
    *,
    name: str = "host",
    all_points: bool = False,
    change: Mapping[str, Any] | None = None,
    **config: Any,
) -> SimulatedHost:
    """Return a machine that has a file, with its plan.

    Args:
        machine: name of its description.
        topology: name of its topology. Default: as the description.
        faults: its only faults. None: those of its description.
        name: name of the host.
        all_points: also those that the search for anomalies does not use.
        change: other keys of the description.
        config: other keys of the config.
    """
    real = shipped_topology(topology or machine)
    description = cast(MachineDescription, {**shipped_machine(machine, real), **(change or {})})
    own = description.get("faults", []) if faults is None else faults
    whole = cast(Config, {**_default_config(), **config})
    return SimulatedHost.planned(description, real, own, whole, name, all_points=all_points)


@dataclass(frozen=True)
class MeasuredHost:
    """A simulated host that reads as measured, with what a report or a profile needs of it."""

    simulated: SimulatedHost
    host: str = "h"
    configuration: str = "nps4"
    seed: int = 1
    day: str = DAY
    failed: Mapping[str, str] = field(default_factory=dict)
    missing: Collection[str] = ()

    def tidy(self) -> pd.DataFrame:
        """Return the tidy table in the types of the file, to be changed at will."""
        return self._file_table.copy()

    @cached_property
    def _file_table(self) -> pd.DataFrame:
        columns = {"host": self.host, "configuration": self.configuration, "origin": None}
        table = self.simulated.table(
            self.seed, failed=self.failed, missing=self.missing, **columns
        ).rows
        measured_at = table["measured_at"].str.replace(DAY, self.day)
        return in_types_of_file(table.assign(measured_at=measured_at))

    def topology(self) -> dict[str, Any]:
        """Return the JSON of the topology."""
        return topology_to_json(self.simulated.topology)

    def components(self) -> dict[str, dict[str, Any]]:
        """Return the component documents of the drives, by component name."""
        return {
            drive_component_name(drive): {
                "component": "drive",
                "serial": f"S{number}",
                "model": "Corsair MP600 PRO",
                "firmware": "EIFM51.3",
                "node": drive.node,
            }
            for number, drive in enumerate(self.simulated.topology.drives)
        }


_MEASURED: dict[str, MeasuredHost] = {}


@cache
def _planned_once(
    machine: str, topology: str | None, names: tuple[str, ...], replicates: int
) -> SimulatedHost:
    return planned(
        machine, topology, all_points=True, experiments=list(names), replicates=replicates
    )


def measured_host(
    machine: str,
    *experiments: str,
    topology: str | None = None,
    replicates: int = 3,
    **keys: Any,
) -> MeasuredHost:
    """Return a simulated host that reads as measured; `keys` are attributes of it."""
    names = experiments or ("memory_bandwidth", "storage_bandwidth", "interference")
    made = MeasuredHost(_planned_once(machine, topology, names, replicates), **keys)
    asked = repr((machine, names, topology, replicates, sorted(keys.items())))
    return _MEASURED.setdefault(asked, made)


def leave_out(
    host: SimulatedHost, seed: int, is_wanted: Callable[[Point, Topology], bool], random: int = 58
) -> tuple[Measurements, Measurements]:
    """Return the tables of a run with a budget: what was measured, and what was left out.

    It measures the points that are wanted, and so many random points of the others.
    """
    wanted = {point["point"]: is_wanted(point, host.topology) for point in host.points}
    others = [name for name, chosen in wanted.items() if not chosen]
    draw = np.random.default_rng(seed)
    chosen = set(draw.choice(others, min(random, len(others)), replace=False))
    table = host.table(seed).rows.drop(columns="load_count")
    known = table["point"].map(lambda name: wanted[name] or name in chosen)
    missing = table[~known].assign(status=MISSING, value=np.nan, replicate=1)
    return Measurements.from_table(table[known]), Measurements.from_table(missing)


def is_small_drive_set(point: Point, topology: Topology, few: bool = False) -> bool:
    """Return whether a point reads drives of one or two nodes, of a package, or all.

    With `few`, only the first node of each package reads those of two nodes.
    """
    [load] = point["loads"]
    packages = topology.package_of_node
    nodes, [reader] = set(load["target"]["nodes"]), load["initiator"]["nodes"]
    own = [node for node, package in packages.items() if package == packages[reader]]
    if len(nodes) == 2 and (reader == min(own) or not few):
        return True
    of_package = {node for node in packages if packages[node] == packages[min(nodes)]}
    return len(nodes) == 1 or nodes in (of_package, {drive.node for drive in topology.drives})


@cache
def server() -> SimulatedHost:
    """A server with eight nodes in two packages and 30 drives, without faults."""
    return planned("epyc_7413", "epyc_7413_nps4")


def _is_read(point: Point) -> bool:
    """Return whether the search for anomalies uses a point."""
    metrics = [load["metrics"] for load in point["loads"]]
    by_node = any("by_node" in source for own in metrics for source in own.values())
    return not by_node and (len(metrics) == 1 or all("latency_ns" in own for own in metrics))


def _factor(
    metric: str, source: MetricSourceWithUpperBound, quality: float, samples: list[float]
) -> float:
    """Return the factor by which the noise of a run changes a metric, see `draw_noise`."""
    if metric in ("locality", "dwp"):
        return 1.0
    if less_is_better(metric):
        return 1.0 / quality
    return quality * fmean(samples) if source.get("progress") else quality

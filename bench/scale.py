"""Time and memory of each step from the plan to the report, on simulated servers of growing size.

The default config gives the experiments and replicates. The servers have 4, 8 and 48 nodes, so the
number of points grows with nodes, L3 domains and drives, as on real machines. A row has the median
and the range of the runs.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import yaml
from lxml import etree

from make_topologies import GIB, Machine, make_topology

ROOT = Path(__file__).resolve().parents[1]
HOST = "server"
# Each drive has its own PCI bus, and a bus number has only eight bits.
MOST_DRIVES = 15


@dataclass(frozen=True)
class Size:
    """A server with this many nodes in each of four packages, and how often it is simulated."""

    nodes_of_package: int
    runs: int


@dataclass(frozen=True)
class Cost:
    """The cost of a command: seconds, processor seconds, bytes of its largest process."""

    wall: float
    cpu: float
    peak: float


# About 1,000, 10,000 and 90,000 records.
SMALL = (Size(1, 3), Size(2, 3))
LARGE = (*SMALL, Size(12, 1))


def compare(_: int) -> Iterator[str]:
    """Yield a table for each server with up to 10,000 records, and the growth between them."""
    yield from server_tables(SMALL)


def compare_large(_: int) -> Iterator[str]:
    """Yield the tables up to 90,000 records; takes half an hour, 3 GB memory and 2 GB disk."""
    yield from server_tables(LARGE)


def server_tables(sizes: Sequence[Size]) -> Iterator[str]:
    """Yield the tables of all sizes, with the exponents of growth from the smaller size."""
    head = f"  {'step':24}{'wall s':>9}{'range':>18}{'CPU s':>9}{'peak MB':>9}"
    records_before, before = 0, dict[str, Cost]()
    for size in sizes:
        counts, runs = zip(*(simulate_end_to_end(size) for _ in range(size.runs)), strict=True)
        points, records, disk = counts[0]
        yield (
            f"{4 * size.nodes_of_package} nodes: {points} points, {records} records,"
            f" {disk / 1e6:.0f} MB on disk, n = {size.runs}"
        )
        yield head + (f"{'growth of wall, CPU, peak':>27}" if before else "")
        medians = {step: median_cost([run[step] for run in runs]) for step in runs[0]}
        for step, cost in medians.items():
            walls = sorted(run[step].wall for run in runs)
            exponents = [exponent(cost, before[step], records / records_before)] if before else []
            yield (
                f"  {step:24}{cost.wall:>9.2f}{f'{walls[0]:.2f} to {walls[-1]:.2f}':>18}"
                f"{cost.cpu:>9.2f}{cost.peak / 1e6:>9.0f}"
                + "".join(f"{one.wall:>11.2f}{one.cpu:>8.2f}{one.peak:>8.2f}" for one in exponents)
            )
        records_before, before = records, medians


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Return the median of each number of the costs."""
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
        statistics.median(cost.peak for cost in costs),
    )


def exponent(now: Cost, before: Cost, ratio: float) -> Cost:
    """Return the power of the number of records with which each number grows; 1 is linear."""
    pairs = zip(astuple(now), astuple(before), strict=True)
    return Cost(*(math.log(new / old) / math.log(ratio) for new, old in pairs))


def simulate_end_to_end(size: Size) -> tuple[tuple[int, int, int], dict[str, Cost]]:
    """Return the points, records and bytes of a server, and step -> its cost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(size, folder)
        program = [str(Path(sys.executable).parent / "chaosity")]
        config = ["--config", "bench.yaml"]
        xml = str(folder / "server.xml")
        costs = {
            "plan": run([*program, "plan", "--topology", xml, *config], folder),
            "simulate": run([*program, "simulate", *config], folder),
        }
        [plan] = folder.glob(f"results/{HOST}/*/plan.json")
        results = plan.parent
        table, history = results / "measurements.parquet", results / "history.parquet"
        findings, exports = results / "findings.json", results / "exports"
        tables = [f"--table={table}", f"--history={history}", f"--findings={findings}"]
        commands = {
            "tidy table": ["tidy", plan, f"--output={table}", f"--history={history}"],
            "statistics and findings": ["anomalies", table, "--json"],
            "exports": ["export", "all", results, f"--output={exports}"],
            "figures and report": ["report", plan, *tables, f"--output={results}/report.html"],
        }
        for step, command in commands.items():
            output = findings if step == "statistics and findings" else Path(os.devnull)
            costs[step] = run([*program, *map(str, command)], folder, output)
        costs["snakemake --dry-run"] = run([*snakemake(), "--dry-run"], folder)
        summary = json.loads(plan.read_text())
        files = (path.lstat() for path in results.glob("*/*/attempts/*.json"))
        disk = sum(512 * file.st_blocks for file in files)
        return (summary["points"], summary["measurements"], disk), costs


def write_inputs(size: Size, folder: Path) -> None:
    """Write topology, inventory and config of a server."""
    nodes = size.nodes_of_package
    machine = Machine(
        f"pack:4 group:{nodes} [numa(memory={64 * GIB})] l3:2(size=33554432)"
        " l2:4(size=524288) l1:1(size=32768) core:1 pu:1",
        "Imagined processor",
        drives=(1,) * min(4 * nodes, MOST_DRIVES),
    )
    (folder / "server.xml").write_bytes(etree.tostring(make_topology(machine)))
    host = {
        "chaosity_topology": str(folder / "server.xml"),
        "chaosity_simulated": str(ROOT / "templates/machines/sixteen_nodes.yaml"),
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {HOST: host}}}))
    config = {"inventory": str(folder / "hosts.yml"), "results": "results"}
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))


def snakemake() -> list[str]:
    """Return the command line of Snakemake for the workflow, in a folder with bench.yaml."""
    return [
        *(sys.executable, "-m", "snakemake", "--quiet", "--configfile", "bench.yaml"),
        *("--snakefile", str(ROOT / "workflow/Snakefile")),
        *("--workflow-profile", str(ROOT / "profiles/default")),
    ]


def run(command: Sequence[str], folder: Path, output: Path = Path(os.devnull)) -> Cost:
    """Run a command, which must succeed, and return its cost."""
    began = time.monotonic()
    with output.open("wb") as stream, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=stream, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed: {errors.read().decode()}")
    # Linux counts the largest process in KiB.
    return Cost(seconds, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)


PARTS = {"scale": compare}
ONLY_IF_NAMED = {"scale_large": compare_large}

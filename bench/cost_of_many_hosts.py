"""Time and memory of runs of many simulated hosts that are already measured.

The real workflow measures one host. The results of all other hosts are copies, since only the
number of hosts matters here. The runs are compared with a bare Snakefile with the same number of
finished jobs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from planning import BARE
from scale import Cost, exponent, run

ROOT = Path(__file__).resolve().parents[1]
MACHINE = ROOT / "templates/machines/xeon_8358.yaml"
HOST = {
    "chaosity_topology": str(ROOT / "templates/machines/topologies/xeon_8358.xml"),
    "chaosity_simulated": str(MACHINE),
}
FIRST = "h0000"


def compare(_: int) -> Iterator[str]:
    """Yield the tables for fleets of 10 and 100 hosts."""
    yield from cost_lines((10, 100))


def compare_large(_: int) -> Iterator[str]:
    """Yield the tables for fleets of 10 to 1,000 hosts; takes ten minutes of processor time."""
    yield from cost_lines((10, 100, 1000))


def cost_lines(sizes: Sequence[int]) -> Iterator[str]:
    """Yield a line for each number of hosts and each command, with the exponents of growth."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        snakemake = [
            *(sys.executable, "-m", "snakemake", "--quiet", "--configfile", "bench.yaml"),
            *("--snakefile", str(ROOT / "workflow/Snakefile")),
            *("--workflow-profile", str(ROOT / "profiles/default")),
        ]
        write_inputs(folder, 2)
        run(snakemake, folder)
        before: dict[str, Cost] = {}
        for number, earlier in zip(sizes, (0, *sizes), strict=False):
            write_inputs(folder, number)
            copy_first_host(folder, number)
            bare = folder / f"bare{number}"
            bare.mkdir()
            (bare / "Snakefile").write_text(BARE.replace("COUNT", str(number)))
            plain = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet"]
            run([*plain, "--touch"], folder_with_outputs(bare, number))
            commands = {
                "next run": (snakemake, folder),
                "dry run": ([*snakemake, "--dry-run"], folder),
                "bare run": (plain, bare),
            }
            for step, (command, place) in commands.items():
                cost = run(command, place)
                growth = exponent(cost, before[step], number / earlier) if step in before else None
                yield table_line(f"{number} unchanged hosts, {step}", cost, growth)
                before[step] = cost


def table_line(name: str, cost: Cost, growth: Cost | None) -> str:
    """Return a line of the table; `growth` has the exponents of growth from the smaller fleet."""
    text = (
        f"{name:40} wall {cost.wall:7.1f} s, CPU {cost.cpu:7.1f} s, peak {cost.peak / 1e6:5.0f} MB"
    )
    return text + (f", growth of CPU {growth.cpu:.2f}, peak {growth.peak:.2f}" if growth else "")


def write_inputs(folder: Path, number: int) -> None:
    """Write an inventory of this many hosts, and a config with four points for each."""
    hosts = {f"h{index:04}": HOST for index in range(number)}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    config = {
        "inventory": str(folder / "hosts.yml"),
        "results": str(folder / "results"),
        "experiments": ["memory_bandwidth"],
        "sample": {"memory_bandwidth": 4},
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))


def folder_with_outputs(folder: Path, number: int) -> Path:
    """Make the outputs of the bare Snakefile, and return its folder."""
    for index in range(number):
        (folder / f"out/{index}").mkdir(parents=True)
        (folder / f"out/{index}/rep1.json").touch()
    return folder


def copy_first_host(folder: Path, number: int) -> None:
    """Copy the results of the first host to the others, with their names and old time stamps.

    Tables in Parquet keep the name of the first host: no run of unchanged hosts reads them.
    """
    results = folder / "results"
    for index in range(1, number):
        name = f"h{index:04}"
        shutil.rmtree(results / name, ignore_errors=True)
        shutil.copytree(results / FIRST, results / name)
        for path in (results / name).rglob("*"):
            if path.is_file() and path.suffix not in {".parquet", ".png"}:
                before, text = path.stat(), path.read_text()
                path.write_text(text.replace(FIRST, name))
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


PARTS = {"fleet": compare}
ONLY_IF_NAMED = {"fleet_large": compare_large}

"""Planning ten or a hundred thousand measurements against a bare Snakefile with as many jobs."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import yaml
from scale import Cost, run

ROOT = Path(__file__).resolve().parents[2]
# 40 nodes and 160 L3 domains: 9,882 points of memory bandwidth.
MACHINE = "pack:4 numa:10 l3:4 core:2 pu:2"

BARE = """
rule all:
    input: expand("out/{i}/rep1.json", i=range(COUNT))

rule measure:
    output: "out/{i}/rep1.json"
    shell: "true > {output}"
"""


def compare(pairs: int) -> list[tuple[str, list[float], str, str]]:
    """Ratios of processor time and memory with 10,000 measurements."""
    return ratios(pairs, replicates=1)


def compare_large(pairs: int) -> list[tuple[str, list[float], str, str]]:
    """Ratios with 100,000 measurements; a pair takes five minutes of processor time and 4 GB."""
    return ratios(pairs, replicates=10)


def ratios(pairs: int, replicates: int) -> list[tuple[str, list[float], str, str]]:
    """Ratios of two dry runs, in turn; the first pair warms caches and does not count.

    Processor time and not wall time is compared, since other programs may use the machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs, count = commands(Path(folder), replicates)
        bare = Path(folder) / "bare"
        costs: list[tuple[Cost, Cost]] = []
        for _ in range(pairs + 1):
            costs.append((run(ours, Path(folder)), run(theirs, bare)))
    name = f"planning {count} measurements : bare Snakefile"
    goal = "goal: at most 1.5"
    return [
        (f"{name}, CPU", [own.cpu / other.cpu for own, other in costs[1:]], ".2f", goal),
        (f"{name}, memory", [own.peak / other.peak for own, other in costs[1:]], ".2f", goal),
    ]


def commands(folder: Path, replicates: int) -> tuple[list[str], list[str], int]:
    """The commands of the dry runs here and in `folder`/bare, and their number of jobs."""
    xml = folder / "machine.xml"
    subprocess.run(["lstopo", "--input", MACHINE, "--of", "xml", str(xml)], check=True)
    hosts = {"big": {"chaosity_topology": str(xml)}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    config = {
        "inventory": f"{folder}/hosts.yml",
        "replicates": replicates,
        "experiments": ["memory_bandwidth"],
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))
    ours = [
        "snakemake",
        "--snakefile",
        str(ROOT / "workflow/Snakefile"),
        *("--workflow-profile", str(ROOT / "profiles/default")),
        *("--configfile", "bench.yaml", "--dry-run", "--quiet"),
    ]
    shown = subprocess.run([*ours[:-1]], capture_output=True, text=True, cwd=folder, check=True)
    count = shown.stdout.count("rule measure:") + shown.stderr.count("rule measure:")
    (folder / "bare").mkdir()
    (folder / "bare/Snakefile").write_text(BARE.replace("COUNT", str(count)))
    return ours, ["snakemake", "--cores", "1", "--dry-run", "--quiet"], count

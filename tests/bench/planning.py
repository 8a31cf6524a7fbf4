"""Planning ten thousand points against a bare Snakefile with as many trivial jobs."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
# 40 nodes and 160 L3 domains: 10,186 points of memory bandwidth with one replicate.
MACHINE = "pack:4 numa:10 l3:4 core:2 pu:2"

BARE = """
rule all:
    input: expand("out/{i}/rep1.json", i=range(COUNT))

rule measure:
    output: "out/{i}/rep1.json"
    shell: "true > {output}"
"""


def seconds(command: list[str], folder: str) -> float:
    """How long a command takes."""
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.monotonic() - began


def compare(pairs: int) -> list[tuple[str, list[float], str, str]]:
    """Ratio of two dry runs, in turn; the first pair warms caches and does not count."""
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "machine.xml"
        subprocess.run(["lstopo", "--input", MACHINE, "--of", "xml", str(xml)], check=True)
        hosts = {"big": {"chaosity_topology": str(xml)}}
        (Path(folder) / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        config = {
            "inventory": f"{folder}/hosts.yml",
            "replicates": 1,
            "experiments": ["memory_bandwidth"],
        }
        (Path(folder) / "bench.yaml").write_text(yaml.safe_dump(config))
        profile = ["--workflow-profile", str(ROOT / "profiles/default")]
        ours = [
            "snakemake",
            "--snakefile",
            str(ROOT / "workflow/Snakefile"),
            *profile,
            "--configfile",
            "bench.yaml",
            "--dry-run",
            "--quiet",
        ]
        shown = subprocess.run([*ours[:-1]], capture_output=True, text=True, cwd=folder, check=True)
        count = shown.stdout.count("rule measure:") + shown.stderr.count("rule measure:")
        bare = Path(folder) / "bare"
        bare.mkdir()
        (bare / "Snakefile").write_text(BARE.replace("COUNT", str(count)))
        theirs = ["snakemake", "--cores", "1", "--dry-run", "--quiet"]
        ratios = [seconds(ours, folder) / seconds(theirs, str(bare)) for _ in range(pairs + 1)]
    return [(f"planning {count} points : bare Snakefile", ratios[1:], ".2f", "goal: at most 1.5")]

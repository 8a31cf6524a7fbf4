"""Time to plan 10,000 or 100,000 measurements, against a bare Snakefile with as many jobs.

Four runs are compared: the dry run of a new host, the rerun without a change, and the dry runs
after a record was lost and after a component changed. The host and its records are simulated. The
tables and the report are empty files, since planning reads only their time stamps.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from scale import Cost, exponent, median_cost, run

ROOT = Path(__file__).resolve().parents[1]
# 40 nodes and 160 L3 domains: 9,882 points of memory bandwidth.
MACHINE = "pack:4 numa:10 l3:4 core:2 pu:2"
DESCRIPTION = ROOT / "templates/machines/sixteen_nodes.yaml"
GOAL = "goal: at most 1.5"
# The largest number of replicates that `compare_large` plans.
MANY = 10

BARE = """
rule all:
    input: expand("out/{i}/rep1.json", i=range(COUNT))

rule measure:
    output: "out/{i}/rep1.json"
    shell: "true > {output}"
"""

# This Snakefile makes the missing outputs, and lets Snakemake's own code note all jobs as finished.
# To run ten thousand jobs instead would take ten minutes.
FINISH = """
include: "SNAKEFILE"

onstart:
    async def finish():
        for job in (job for level in workflow.dag.toposorted() for job in level):
            for path in map(Path, job.output):
                if path.name == "figures":
                    path.mkdir(exist_ok=True)
                elif not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            await workflow.persistence.finished(job)
    workflow.async_run(finish())
    sys.exit(0)
"""

Figure = tuple[str, Sequence[float], str, str]


def compare(pairs: int) -> Iterator[Figure | str]:
    """Yield ratios of processor time and memory with 10,000 measurements."""
    yield from compare_sizes(pairs, (1,))


def compare_large(pairs: int) -> Iterator[Figure | str]:
    """Yield also the ratios with 100,000 measurements; takes an hour of processor time and 4 GB."""
    yield from compare_sizes(pairs, (1, MANY))


def compare_sizes(pairs: int, sizes: Sequence[int]) -> Iterator[Figure | str]:
    """Yield ratios and costs of each state, for each number of replicates."""
    before: dict[str, Cost] = {}
    for replicates in sizes:
        with tempfile.TemporaryDirectory() as folder:
            planning = Planning(Path(folder), replicates)
            for state, bare, rerun in planning.states():
                costs = planning.cost_of_pairs(pairs, rerun)
                name = f"planning {planning.count} measurements, {state} : {bare}"
                cpu = [own.cpu / other.cpu for own, other in costs]
                peak = [own.peak / other.peak for own, other in costs]
                yield f"{name}, CPU", cpu, ".2f", GOAL
                yield f"{name}, memory", peak, ".2f", GOAL
                for side, of in ((0, "chaosity"), (1, "bare")):
                    taken = [pair[side] for pair in costs]
                    yield cost_line(f"{state}, {of}", taken, before, replicates)


def cost_line(name: str, costs: Sequence[Cost], before: dict[str, Cost], replicates: int) -> str:
    """Return a line with the median cost, its range, and its growth since one replicate."""
    middle = median_cost(costs)
    seconds = sorted(cost.cpu for cost in costs)
    text = (
        f"{name:58} CPU {middle.cpu:.1f} s ({seconds[0]:.1f} to {seconds[-1]:.1f}),"
        f" peak {middle.peak / 1e6:.0f} MB, n = {len(costs)}"
    )
    if name in before:
        growth = exponent(middle, before[name], replicates)
        text += f"; exponents of growth: CPU {growth.cpu:.2f}, peak {growth.peak:.2f}"
    before.setdefault(name, middle)
    return text


class Planning:
    """A simulated host and a bare Snakefile with as many jobs, in the same folder.

    Args:
        folder: an empty folder.
        replicates: how often each point is measured.
    """

    def __init__(self, folder: Path, replicates: int) -> None:
        self.folder, self.bare = folder, folder / "bare"
        xml = folder / "machine.xml"
        subprocess.run(["lstopo", "--input", MACHINE, "--of", "xml", str(xml)], check=True)
        host = {"chaosity_topology": str(xml), "chaosity_simulated": str(DESCRIPTION)}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"big": host}}}))
        config = {
            "inventory": f"{folder}/hosts.yml",
            "results": "results",
            "replicates": replicates,
            "experiments": ["memory_bandwidth"],
        }
        (folder / "bench.yaml").write_text(yaml.safe_dump(config))
        self.own_options = [
            *("--workflow-profile", str(ROOT / "profiles/default")),
            *("--configfile", "bench.yaml", "--quiet"),
        ]
        self.bare_options = ["--cores", "1", "--quiet"]
        self.own = ["snakemake", "--snakefile", str(ROOT / "workflow/Snakefile"), *self.own_options]
        plan = ["chaosity", "plan", "--topology", str(xml), "--config", "bench.yaml", "--json"]
        shown = subprocess.run(plan, capture_output=True, text=True, cwd=folder, check=True)
        self.count: int = json.loads(shown.stdout)["measurements"]
        self.bare.mkdir()
        (self.bare / "Snakefile").write_text(BARE.replace("COUNT", str(self.count)))

    def states(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Bring both folders into each state, in turn.

        Yields:
            What changed here, what changed in the bare folder, and the options of the rerun.
        """
        dry = ("--dry-run",)
        yield "new host", "bare Snakefile", dry
        self.finish_all()
        yield "no change", "bare", ()
        [plan] = self.folder.glob("results/big/*/plan.json")
        results = plan.parent
        first = sorted(results.glob("memory_bandwidth/*/rep1.json"))[0]
        first.rename(first.with_suffix(".away"))
        (self.bare / "out/0/rep1.json").unlink()
        yield "a record missing", "an output missing", dry
        first.with_suffix(".away").rename(first)
        component = results / "components/node0.json"
        component.write_text(json.dumps({**json.loads(component.read_text()), "note": "new"}))
        touched = [
            file
            for file in (results / "points/memory_bandwidth").iterdir()
            if "node0" in json.loads(file.read_text())["components"]
        ]
        number = len(touched) * self.count // len(list(results.glob("memory_bandwidth/*")))
        for index in range(1, number):
            (self.bare / f"out/{index}/rep1.json").unlink()
        yield "a component changed", f"{number} outputs missing", dry

    def finish_all(self) -> None:
        """Simulate all records, and let Snakemake note all jobs as finished, in both folders."""
        run(["chaosity", "simulate", "--config", "bench.yaml"], self.folder)
        for folder, snakefile, options in (
            (self.folder, ROOT / "workflow/Snakefile", self.own_options),
            (self.bare, self.bare / "Snakefile", self.bare_options),
        ):
            text = "import sys\nfrom pathlib import Path\n" + FINISH
            (folder / "finish.smk").write_text(text.replace("SNAKEFILE", str(snakefile)))
            # A rule of an included file is no default target.
            command = ["snakemake", "--snakefile", "finish.smk", *options, "--", "all"]
            run(command, folder)

    def cost_of_pairs(self, pairs: int, options: Sequence[str]) -> list[tuple[Cost, Cost]]:
        """Return pairs of costs: here, and of the bare Snakefile; a first pair warms caches."""
        bare = ["snakemake", *self.bare_options]
        return [
            (run([*self.own, *options], self.folder), run([*bare, *options], self.bare))
            for _ in range(pairs + 1)
        ][1:]


PARTS = {"planning": compare}
ONLY_IF_NAMED = {"planning_large": compare_large}

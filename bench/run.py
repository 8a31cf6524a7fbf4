"""Compare the project with bare tools and with known truths: ``make bench``.

Each figure is a ratio or difference of pairs. Both sides of a pair run in turn, since a shared
machine drifts. The program prints the median, its 95 % interval from the order of the pairs, and
the number of pairs. For parts on simulated machines, this number is the number of seeds. The
results of a part are kept in bench/results/PART.json, and docs/validation.md is written from these
files.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import click
from scipy import stats

Figure: TypeAlias = tuple[str, Sequence[float], str, str]
Part: TypeAlias = Callable[[int], Iterable[Figure | str]]

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "results"
# The parts use each other, helpers of the tests, and the maker of topologies.
sys.path[:0] = map(
    str, (BENCH, BENCH.parent / "tests/support", BENCH.parent / "templates/machines/topologies")
)

# Each module says which parts it has; a part that takes an hour runs only if it is named.
PARTS: dict[str, Part] = {}
ONLY_IF_NAMED: dict[str, Part] = {}
MODULES: dict[str, ModuleType] = {}
for path in sorted(BENCH.glob("*.py")):
    if path != Path(__file__).resolve():
        module = import_module(path.stem)
        named = getattr(module, "ONLY_IF_NAMED", {})
        PARTS |= getattr(module, "PARTS", {})
        ONLY_IF_NAMED |= named
        MODULES |= dict.fromkeys({**getattr(module, "PARTS", {}), **named}, module)


def figure_texts(name: str, values: Sequence[float], form: str, goal: str) -> dict[str, object]:
    """Return one figure as texts: its name, median, 95 % interval, number of pairs and goal."""
    ordered = sorted(values)
    median = (
        ordered[len(ordered) // 2]
        if len(ordered) % 2
        else sum(ordered[len(ordered) // 2 - 1 : len(ordered) // 2 + 1]) / 2
    )
    found: dict[str, object] = {"name": name, "median": f"{median:{form}}", "n": len(values)}
    if len(values) >= 6:  # below six pairs no interval from their order reaches 95 %
        interval = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
        found["interval"] = f"{interval.low:{form}} to {interval.high:{form}}"
    return {**found, "goal": goal}


def figure_line(figure: dict[str, object]) -> str:
    """Return one figure as a line."""
    text = f"{figure['name']:58} {figure['median']}"
    if "interval" in figure:
        text += f"  95 % interval {figure['interval']}"
    return f"{text}  n = {figure['n']}  ({figure['goal']})"


def this_machine() -> str:
    """Return processor, number of processing units and kernel of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [each.partition(":")[2].strip() for each in lines if each.startswith("model name")]
    flags = next((each for each in lines if each.startswith("flags")), "")
    kind = ", virtual machine" if " hypervisor" in flags else ""
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} processing units{kind},"
        f" Linux {'.'.join(platform.release().split('.')[:2])}"
    )


def this_commit() -> str:
    """Return the commit that runs, with a mark if files differ from it; empty outside of Git."""

    def git_output(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=BENCH.parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    # Results of earlier parts do not change the code that runs.
    differs = git_output("status", "--porcelain", "--", ".", ":!bench/results", ":!docs")
    return git_output("rev-parse", "--short", "HEAD") + ("-dirty" if differs else "")


@click.command(
    help=__doc__, epilog=f"Parts: {', '.join(PARTS)}. Only if named: {', '.join(ONLY_IF_NAMED)}."
)
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, *ONLY_IF_NAMED]), metavar="[PART]...")
@click.option("--pairs", default=9, show_default=True, help="Pairs of a figure, or seeds.")
@click.option("--keep/--print-only", default=True, help="Whether results and page are written.")
def main(parts: tuple[str, ...], pairs: int, *, keep: bool) -> None:
    """Run the parts that were asked for; all of them by default."""
    for part in parts or PARTS:
        print(f"{part}:", flush=True)
        begin, said, load = time.monotonic(), [], os.getloadavg()[0]
        for figure in {**PARTS, **ONLY_IF_NAMED}[part](pairs):
            # A result that is not a ratio of pairs is already a line of text.
            said.append(figure if isinstance(figure, str) else figure_texts(*figure))
            print(f"  {figure if isinstance(figure, str) else figure_line(said[-1])}", flush=True)
        if keep:
            result = {
                "part": part,
                "about": MODULES[part].__doc__,
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "commit": this_commit(),
                "machine": f"{this_machine()}, load {load:.0f} before the part",
                "pairs": pairs,
                "seconds": round(time.monotonic() - begin),
                "said": said,
            }
            RESULTS.mkdir(exist_ok=True)
            text = json.dumps(result, indent=1, ensure_ascii=False)
            (RESULTS / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    if keep:
        import_module("validation_page").write()


if __name__ == "__main__":
    main()

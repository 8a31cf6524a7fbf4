"""Write docs/validation.md from the results that ``make bench`` keeps in bench/results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = RESULTS.parents[1] / "docs" / "validation.md"

# Title of a section -> its parts, in order.
SECTIONS = {
    "Do intervals hold the truth?": (
        "coverage",
        "simulated_coverage",
        "mode_crossovers",
        "repeat",
    ),
    "Are healthy machines left alone, and faults found?": (
        "healthy_machines",
        "planted_faults",
        "suspects",
        "half_width_links",
        "false_alarms_and_recall",
        "faults",
        "sick_host_on_overview",
    ),
    "What do nightly checks find?": ("checks", "checks_of_fleets", "history"),
    "What does a budget cost?": ("budgets", "budgets_here", "predicted_drive_sets"),
    "Are fits, predictions and advice right?": ("fitted_machines", "predicted_loads", "advice"),
    "Do the programs measure as others do?": (
        "peers",
        "kernels",
        "latency",
        "traffic_threads",
        "streaming",
        "fio",
        "points",
        "working_sets",
    ),
    "Do simulated machines have the numbers of the papers?": ("papers",),
    "How large may a fleet be?": (
        "planning",
        "planning_large",
        "scale",
        "scale_large",
        "fleet",
        "fleet_large",
    ),
}
HEAD = """# Validation

What this project claims about itself is measured here by `make bench`. The page is written from the
files of `bench/results`, one for each part. Each part says when, where and with which commit it ran
last; a part that was not run again keeps its older numbers. Where the commit of the run is unknown,
the numbers come from a table of the documents, which was committed in the named commit.

On simulated machines the true value of each cell is known. The simulated
machines follow the model exactly, so such a part shows that the analysis is right for the model,
and not how close a real machine is to it. Shares have 95 % intervals by Clopper and Pearson.
"""


def _said(lines: list[Any]) -> Iterator[str]:
    """Yield what a part said: tables as they are, figures as a table, other lines as a list."""

    def kind(entry: object) -> str:
        if isinstance(entry, Mapping):
            return "figure"
        return "table" if str(entry).startswith("|") else "text"

    for what, group in groupby((one for one in lines if one), kind):
        entries = list(group)
        if what == "figure":
            yield "| compared | median | 95 % interval | n | goal |\n|---|---|---|---|---|"
            for one in entries:
                cells = (one[key] for key in ("name", "median"))
                rest = (one.get("interval", ""), one["n"], one["goal"])
                yield f"| {' | '.join(map(str, (*cells, *rest)))} |"
        elif what == "table":
            yield from entries
        else:
            yield from _texts(entries)
        yield ""


def _texts(lines: list[str]) -> Iterator[str]:
    """Yield lines as a table if they have the same columns, with gaps between, or as a list."""
    rows = [re.split(r"\s{2,}", one.strip()) for one in lines]
    [columns, *others] = {len(row) for row in rows}
    if others or columns == 1:
        yield from (f"- {' '.join(row)}" for row in rows)
        return
    yield f"|{' |' * columns}\n|{'---|' * columns}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _part(result: Mapping[str, Any]) -> Iterator[str]:
    about = result["about"].replace("``", "`").strip()
    # Results from before this page were written by hand, and committed in `recorded`.
    commit, unknown = f", commit `{result['commit']}`", ""
    if not result["commit"]:
        known = f"the results were committed in `{result['recorded']}`"
        commit, unknown = "", f"; the commit of the run is unknown; {known}"
    machine = f", on {result['machine']}" if result["machine"] else ""
    pairs = f", {result['pairs']} repetitions" if (result["pairs"] or 1) > 1 else ""
    time = f", {result['seconds']} s" if result["seconds"] else ""
    yield f"### {result['part']}\n\n{about}\n"
    yield f"*{result['date']}{commit}{machine}{pairs}{time}{unknown}.*\n"
    yield from _said(result["said"])


def page_text() -> str:
    """Return the text of the page."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = [HEAD]
    for title, parts in SECTIONS.items():
        if found := [results[part] for part in parts if part in results]:
            lines += [f"## {title}\n", *(line for result in found for line in _part(result))]
    note = "<!-- Written by `make bench`; do not edit. -->"
    return "\n".join(lines).rstrip() + f"\n\n{note}\n"


def write() -> None:
    """Write the page."""
    PAGE.write_text(page_text(), encoding="utf-8")


if __name__ == "__main__":
    write()

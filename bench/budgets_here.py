"""Errors of runs with a budget on this machine, beside complete runs.

The runs with different budgets alternate, and each run has its own results folder. The true value
of a cell is unknown. So the error of a run is the difference from the median of the values of all
complete runs. The complete run of the same repetition does not count, because the machine was then
in the same state.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
from chaosity.store.measurements import CELL_COLUMNS, Measurements

FOLDER = Path("build/budgets_here")
COMPLETE = "complete"
# The complete plan of a machine with two cores takes three minutes.
BUDGETS = ("1m", "2m", COMPLETE)


def run_with_each_budget(folder: Path, repetitions: int) -> None:
    """Run the workflow with each budget in turn, and keep each run in `folder`."""
    for repetition in range(repetitions):
        for step in range(len(BUDGETS)):
            budget = BUDGETS[(repetition + step) % len(BUDGETS)]
            results = folder / f"{repetition + 1}-{budget}"
            if (results / "seconds").exists():
                continue
            config = [f"results={results}", *([] if budget == COMPLETE else [f"budget={budget}"])]
            began = time.monotonic()
            subprocess.run(["snakemake", "--quiet", "--config", *config], check=True)
            (results / "seconds").write_text(str(time.monotonic() - began))


def cells_of_run(results: Path) -> pd.DataFrame:
    """Return the summary of each valid cell of a run."""
    table = next(results.glob("*/*/measurements.parquet"))
    cells = summarise_cells(with_variance_priors(Measurements.read(table).performance_rows()))
    cells = cells[cells["status"] == "valid"]
    return cells.astype(dict.fromkeys(CELL_COLUMNS, str)).set_index(list(CELL_COLUMNS))


def budget_rows(folder: Path) -> pd.DataFrame:
    """Return a row for each budget, with medians over the repetitions."""
    runs = {path.parent.name: cells_of_run(path.parent) for path in folder.glob("*/seconds")}
    rows = []
    for name, cells in runs.items():
        repetition, _, budget = name.partition("-")
        others = [
            np.log(own["median"])
            for other, own in runs.items()
            if other.endswith(COMPLETE) and not other.startswith(f"{repetition}-")
        ]
        pooled = pd.concat(others, axis=1).median(axis=1).reindex(cells.index)
        errors = (np.log(cells["median"]) - pooled).abs().dropna()
        known = cells.loc[errors.index]
        interval = known["low"].notna()
        holds = known["low"].le(np.exp(pooled[known.index])) & known["high"].ge(
            np.exp(pooled[known.index])
        )
        rows.append(
            {
                "budget": budget,
                "seconds": float((folder / name / "seconds").read_text()),
                "cells": len(known),
                "replicates": float(known["n"].sum()),
                "median error": errors.median(),
                "95 % error": errors.quantile(0.95),
                "worst error": errors.max(),
                "half width": known["precision"].median(),
                "holds pooled": holds[interval].mean(),
            }
        )
    table = pd.DataFrame(rows).groupby("budget")
    return table.median().assign(runs=table.size())


def compare(pairs: int) -> Iterator[str]:
    """Yield the comparison; complete runs that are in the folder already are not repeated."""
    run_with_each_budget(FOLDER, pairs)
    yield from budget_rows(FOLDER).to_string(float_format="{:.4g}".format).splitlines()


ONLY_IF_NAMED = {"budgets_here": compare}

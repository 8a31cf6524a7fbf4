"""Describe how the values were measured: points, order, stopping rules, precision, checks."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from chaosity.report.machine import Facts, facts_of_templates
from chaosity.report.run import Run
from chaosity.statistics.cell_summary import compute_outlier_mask, summarise_cells
from chaosity.text_templates import fill_text, fixed_texts

# The report gives the precision that this share of the cells reaches, not only the worst cell's.
_MOST_CELLS = 0.9


def methods_section(run: Run) -> Facts:
    """Return facts about how the values were measured, computed and predicted."""
    rows, summaries, config = run.measurements.rows, run.summaries, run.config
    cells, texts = summarise_cells(rows), fixed_texts("methods")
    known = cells[cells["precision"].notna()]
    moderated, tested = known[known["prior_cells"] > 0], cells["outliers"].notna()
    checks = [check for summary in summaries for check in summary.checks if check["decisive"]]
    # "memory: pages" and "storage: pages" are the same check of different loads.
    checked = Counter(check["name"].split(": ")[-1] for check in checks)
    passed = Counter(check["name"].split(": ")[-1] for check in checks if check["passed"])
    replicates = rows.groupby("experiment", sort=False)["replicate"]
    of_points = rows.groupby(["experiment", "point"])["replicate"].nunique()
    measurements = rows[["experiment", "point", "replicate", "status"]].drop_duplicates()
    values = facts_of_templates(
        texts["values"],
        config=config,
        number={
            "points": len(of_points),
            "intervals": len(known),
            "moderated": len(moderated),
            "median_precision": known["precision"].median(),
            "precision_of_most": known["precision"].quantile(_MOST_CELLS),
            "outliers": int(compute_outlier_mask(rows).sum()) if tested.any() else 0,
            "tested_for_outliers": int(cells.loc[tested, "n"].sum()),
        },
        replicates=replicates.max().astype(int).to_dict(),
        measured=measurements["status"].value_counts().to_dict(),
        # A row of a point that was measured, if there is one.
        explained=rows.sort_values(
            "status", key=lambda status: status != "valid", kind="stable"
        ).iloc[0],
        similar_values=_range_text(moderated["prior_cells"]),
        more_replicates=_range_text(moderated["prior_freedom"].round()),
        most_cells=_MOST_CELLS,
        worst=None if known.empty else cells.iloc[int(cells["precision"].argmax())],
        in_rounds=of_points.groupby("experiment").nunique().gt(1).any(),
    )
    records = facts_of_templates(
        texts["records"],
        config=config,
        summaries=summaries,
        is_simulated=run.is_simulated,
        checked=checked,
        passed=passed,
        always=[name for name in checked if passed[name] == checked[name]],
    )
    predictions = run.left_out.method_texts() if run.left_out else ()
    predicted = {"Predictions": "\n".join(predictions)} if predictions else {}
    return {**values, **_stopping_rules(run), **records, **predicted}


def _range_text(values: pd.Series) -> str:
    """Return the lowest and the highest whole number: "3 to 8"; empty without values."""
    ends = [] if values.empty else [int(values.min()), int(values.max())]
    return " to ".join(map(str, dict.fromkeys(ends)))


def _stopping_rules(run: Run) -> Facts:
    """Return the stopping rule of each measured category."""
    measured = set(run.measurements.rows["category"].dropna())
    return {
        f"Stopping rule, {category.replace('_', ' ')}": fill_text(
            fixed_texts("methods")["stopping_rule"], rule=rule
        )
        for category, rule in (run.config.get("stopping") or {}).items()
        if category in measured
    }

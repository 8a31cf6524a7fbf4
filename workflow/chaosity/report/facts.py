"""Facts in words: what is in the machine, the state of its host, how values were measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.components.component_history import component_value_text, key_as_words
from chaosity.report.html import svg_as_image
from chaosity.report.run import Run
from chaosity.statistics.cell_summary import compute_outlier_mask, summarise_cells
from chaosity.text_templates import fill_text, fixed_texts
from chaosity.topology.accelerators import accelerator_texts

# Name -> value, or part of the host -> name -> value.
Facts = dict[str, str]
FactGroups = dict[str, Facts]
# The report gives the precision that this share of the cells reaches, not only the worst cell's.
_MOST_CELLS = 0.9


def fill_fact_templates(templates: Mapping[str, str], **values: object) -> Facts:
    """Return each fact with a text; `templates`: name of the fact -> template."""
    texts = {name: fill_text(template, **values) for name, template in templates.items()}
    return {name: text for name, text in texts.items() if text}


def machine_section(run: Run) -> dict[str, Any]:
    """Return the machine's parts: facts, its nodes, their numbers of drives, and lstopo's drawing.

    Raises:
        UserError: the drawing is not an SVG file.
    """
    topology, file = run.topology, run.drawing_file
    models = [(each.model or "NVMe drive").strip() for each in topology.drives]
    sizes = [each.size_bytes for each in topology.drives]
    facts = fill_fact_templates(
        fixed_texts("machine"),
        topology=topology,
        system=run.system,
        drives=Counter(zip(models, sizes, strict=True)),
        accelerators=accelerator_texts(topology),
        gpus=Counter(gpu.model or gpu.name or "unknown" for gpu in topology.compute_gpus),
    )
    return {
        "facts": facts,
        "nodes": topology.nodes,
        "drives_of_nodes": Counter(drive.node for drive in topology.drives),
        "drawing": svg_as_image(file.read_bytes(), "topology", str(file)) if file else None,
    }


def host_state_section(run: Run) -> FactGroups:
    """Return the versions of programs, and all values of the system component."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in run.system.items():
        if isinstance(value, Mapping):
            groups[key] = dict(value)
        elif key != "component":
            groups["general"][key] = value
    groups.pop("tools", None)
    state = {"Programs": _programs(run)}
    for key, values in groups.items():
        if values:
            title = key_as_words(key)
            state[title[:1].upper() + title[1:]] = {
                key_as_words(name): component_value_text(name, value)
                for name, value in values.items()
            }
    return state


def _programs(run: Run) -> Facts:
    """Return the version of each program, or several versions if records differ."""
    versions: dict[str, dict[str, None]] = defaultdict(dict)
    for programs in (run.system.get("tools"), *(each.programs for each in run.summaries)):
        for name, version in programs.items() if isinstance(programs, Mapping) else ():
            versions[name][str(version)] = None
    versions["chaosity"] = {__version__: None}
    return {name: ", ".join(found) for name, found in sorted(versions.items())}


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
    values = fill_fact_templates(
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
    records = fill_fact_templates(
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

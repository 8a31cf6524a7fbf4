"""Sections of facts: the parts of the machine, the host's state, its changes, and the methods."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.components.component_history import (
    ComponentState,
    component_differences,
    component_value_text,
    key_as_words,
)
from chaosity.report.html import svg_as_image
from chaosity.report.problems import load_in_words
from chaosity.report.run import Run
from chaosity.statistics.cell_summary import compute_outlier_mask, summarise_cells
from chaosity.statistics.estimates import Estimate, Ratio, change_text
from chaosity.statistics.ratios import compare_neighbouring_periods
from chaosity.text_templates import fill_text_template, texts_of_yaml_file
from chaosity.topology.accelerators import accelerator_texts
from chaosity.units import format_count, group_thousands

# `Facts` is name -> value, `FactGroups` is part of the host -> name -> value.
Facts = dict[str, str]
FactGroups = dict[str, Facts]
# The report gives the precision that this share of the cells reaches, and the worst precision.
_MOST_CELLS = 0.9


def fill_fact_templates(templates: Mapping[str, str], **values: object) -> Facts:
    """Return name of a fact -> filled template, for each template with a non-empty result."""
    texts = {name: fill_text_template(template, **values) for name, template in templates.items()}
    return {name: text for name, text in texts.items() if text}


def machine_section(run: Run) -> dict[str, Any]:
    """Return what the page shows of the machine: facts, nodes, drives, and lstopo's drawing.

    Raises:
        UserError: the drawing is not an SVG file.
    """
    topology, file = run.topology, run.drawing_file
    models = [(each.model or "NVMe drive").strip() for each in topology.drives]
    sizes = [each.size_bytes for each in topology.drives]
    facts = fill_fact_templates(
        texts_of_yaml_file("machine"),
        topology=topology,
        system=run.system_facts,
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
    """Return the versions of all programs, and all values of the component "system"."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in run.system_facts.items():
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
    """Return program -> its version, or all its versions if records have different ones."""
    versions: dict[str, dict[str, None]] = defaultdict(dict)
    for programs in (
        run.system_facts.get("tools"),
        *(each.programs for each in run.record_summaries),
    ):
        for name, version in programs.items() if isinstance(programs, Mapping) else ():
            versions[name][str(version)] = None
    versions["chaosity"] = {__version__: None}
    return {name: ", ".join(found) for name, found in sorted(versions.items())}


def methods_section(run: Run) -> Facts:
    """Return facts about how the values were measured, computed and predicted."""
    rows, summaries, config = (
        run.measurements.rows,
        run.record_summaries,
        run.config_with_plan_and_notes,
    )
    cells, texts = summarise_cells(rows), texts_of_yaml_file("methods")
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
        # A valid row if there is one, since `chaosity explain` of it is shown as an example.
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
    predictions = run.left_out.prediction_method_texts() if run.left_out else ()
    predicted = {"Predictions": "\n".join(predictions)} if predictions else {}
    return {**values, **_stopping_rules(run), **records, **predicted}


def _range_text(values: pd.Series) -> str:
    """Return the lowest and the highest whole number: "3 to 8"; empty without values."""
    ends = [] if values.empty else [int(values.min()), int(values.max())]
    return " to ".join(map(str, dict.fromkeys(ends)))


def _stopping_rules(run: Run) -> Facts:
    """Return category -> its stopping rule in words, for each measured category."""
    measured = set(run.measurements.rows["category"].dropna())
    return {
        f"Stopping rule, {category.replace('_', ' ')}": fill_text_template(
            texts_of_yaml_file("methods")["stopping_rule"], rule=rule
        )
        for category, rule in (run.config_with_plan_and_notes.get("stopping") or {}).items()
        if category in measured
    }


# The report shows at most this many changes, the newest; the files of components have all.
_MOST_CHANGES = 4
# The table of a change has at most this many largest losses, and as many largest gains.
_MOST_POINTS = 6
# Component -> its states, see `component_history.read_component_histories`.
Histories = Mapping[str, Sequence[ComponentState]]


def component_changes_section(run: Run) -> dict[str, Any] | None:
    """Return the changes of components before and after which there are values; None without one.

    The newest change is first. `lowest` and `highest` have the points with the largest losses and
    gains. `omitted` is the number of points, or of changes, that are left out. `not_comparable` is
    the number of points whose definition changed, too.
    """
    # The room `compare` cannot be used here, since each cell has its own two periods.
    cells = compare_neighbouring_periods(run.history)
    groups = [(json.loads(str(text)), rows) for text, rows in cells.groupby("changed", sort=False)]
    groups.sort(key=lambda item: max((at for _, at in item[0].values()), default=""), reverse=True)
    shown = [
        _change(changed, rows, run.component_histories) for changed, rows in groups[:_MOST_CHANGES]
    ]
    return {"changes": shown, "omitted": len(groups) - len(shown)} if shown else None


def _change(
    changed: Mapping[str, tuple[str | None, str | None]], rows: pd.DataFrame, histories: Histories
) -> dict[str, Any]:
    """Return a change: the components that changed together, and the points measured again."""
    comparable = rows[rows["comparable"]].sort_values("ratio", kind="stable")
    lowest = list(map(_changed_point, comparable.to_dict("records")))
    number, highest = len(lowest), list[Any]()
    if number > 2 * _MOST_POINTS:
        lowest, highest = lowest[:_MOST_POINTS], lowest[: -_MOST_POINTS - 1 : -1]
    return {
        "components": [
            _changed_component(name, *moments, histories.get(name, ()))
            for name, moments in changed.items()
        ],
        "sentence": _effect_sentence(comparable),
        "lowest": lowest,
        "highest": highest,
        "omitted": number - len(lowest) - len(highest),
        "not_comparable": len(rows) - number,
    }


def _changed_component(
    name: str, before: str | None, after: str | None, states: Sequence[ComponentState]
) -> dict[str, Any]:
    """Return a component's name, what happened to it and when, and its changed values."""
    contents = {state.since: dict(state.content or {}) for state in states}
    old, new = contents.get(str(before), {}), contents.get(str(after), {})
    moments = [f"{at[:16].replace('T', ' ')} UTC" if at else "an unknown time"
               for at in (before, after)]  # fmt: skip
    return {
        "name": name,
        "verb": "changed" if old.get("serial") == new.get("serial") else "was replaced",
        "before": moments[0],
        "after": moments[1],
        "facts": {
            key: text or "changed, see the component's file"
            for key, text in component_differences(old, new)
        },
    }


def _effect_sentence(rows: pd.DataFrame) -> str:
    """Return a text on how many values increased, decreased or did not change, and how much."""
    if rows.empty:
        return "No point of the changed component has valid values before and after the change."
    low, high = rows["ratio_low"], rows["ratio_high"]
    numbers = {
        "increased by more than the scatter of the replicates": (low > 1.0).sum(),
        "decreased by more than the scatter of the replicates": (high < 1.0).sum(),
        "without a detected difference": ((low <= 1.0) & (high >= 1.0)).sum(),
        "with a single replicate, so without an interval": low.isna().sum(),
    }
    parts = [f"{group_thousands(number)} {text}" for text, number in numbers.items() if number]
    ends = dict.fromkeys((change_text(rows["ratio"].min()), change_text(rows["ratio"].max())))
    values = format_count(len(rows), "value")
    verb = "was" if len(rows) == 1 else "were"
    return f"{values} {verb} measured again: {', '.join(parts)}. Change: {' to '.join(ends)}."


def _changed_point(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Return a cell's values before and after a change, and the ratio after / before."""
    before, after = (
        Estimate.of_cell({key: row[f"{key}_{side}"] for key in ("median", "low", "high", "n")})
        for side in ("before", "after")
    )
    low, high = (None if pd.isna(row[end]) else row[end] for end in ("ratio_low", "ratio_high"))
    return {
        **{name: row[name] for name in ("experiment", "point", "metric")},
        "place": load_in_words(row),
        "before": before,
        "after": after,
        "ratio": Ratio(row["ratio"], low, high, after.n, before.n),
    }

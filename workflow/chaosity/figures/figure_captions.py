"""Write the caption of a figure: a few statements that are computed from its data."""

from __future__ import annotations

import pandas as pd

from chaosity.figures import caption_comparisons, caption_statements
from chaosity.figures.cache_step_marks import cache_steps_statement
from chaosity.figures.figure_data_and_value_limits import FigureData, mark_rows
from chaosity.figures.figure_style_header_and_legends import STATUS_TEXTS
from chaosity.figures.mark_labels_and_hover_texts import (
    mark_location_text,
    mark_value_text,
    unmeasured_mark_reason_lines,
)
from chaosity.statistics.block_ratios import estimate_group_ratio_paired_by_block
from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.statistics.significance_tests import is_variation_between_cells_significant
from chaosity.store.left_out_points import PREDICTED
from chaosity.store.measurements import is_performance_metric, less_is_better
from chaosity.text_templates import write_text
from chaosity.units import UnitScale

# Share of the targets that each compared relation must have; other targets may have failed.
_MOST_TARGETS = 0.8
# Relations from near to far. Each relation is compared with the nearest measured relation.
_RELATIONS = {
    "same_node": "the same node",
    "same_package": "another node of the package",
    "other_package": "another package",
}


def figure_caption(data: FigureData, scale: UnitScale) -> str:
    """Return the caption of a figure, one to five sentences.

    The caption gives the most important values with interval and n, says when no difference was
    detected, and counts the marks without a value. `scale` is the unit of the values.
    """
    valid = data.marks[data.marks["status"] == "valid"]
    if valid.empty and (data.marks["status"] == UNMEASURED).all():
        return f"Not measured: {'; '.join(unmeasured_mark_reason_lines(data))}."
    statements = [*_value_statements(data, valid, scale), _missing_statement(data)]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in statements if text)


def _value_statements(data: FigureData, valid: pd.DataFrame, scale: UnitScale) -> list[str | None]:
    """Return statements about the valid marks."""
    if valid.empty:
        return []
    bounds = caption_statements.lowest_bound_statement(data) if data.bounds else None
    if len(valid) == 1:
        [mark] = mark_rows(valid)
        return [f"{mark_value_text(mark, scale)} ({mark_location_text(mark, data)})", bounds]
    keys = ["host", "configuration", *data.axes]
    if data.spec.has_measured_x or data.spec.kind == "table":
        keys += ["point", "initiator", "target"]
    differ = is_variation_between_cells_significant(data.measurements, keys)
    statements = [bounds, _main_statement(data) or _range_statement(data, valid, differ)]
    if data.spec.cell_note == "distance":
        statements.append(
            caption_statements.distance_order_statement(valid, "note", data.spec.metric, "distance")
        )
    if data.spec.kind == "heatmap":
        statements.append(_relation_statement(data, differ))
    if (valid["n"] == 1).all() and valid["low"].isna().all():
        statements.append("the values have no intervals, since each point has one replicate")
    return statements


def _main_statement(data: FigureData) -> str | None:
    """Return the statement that this kind of figure should show; None if there is none."""
    spec, statement = data.spec, None
    if spec.loss_to is not None:
        statement = caption_comparisons.difference_to_base_statement(data, spec.loss_to)
    elif spec.sum:
        statement = caption_comparisons.sum_to_larger_load_statement(data)
    elif spec.compare is not None:
        statement = caption_comparisons.level_comparison_statement(data, spec.compare)
    elif spec.mark_best:
        statement = caption_comparisons.best_mark_statement(data)
    elif spec.cache_steps:
        statement = cache_steps_statement(data)
    elif spec.kind == "curve":
        statement = caption_statements.latency_curve_statement(data)
    elif spec.kind == "scatter":
        valid = data.marks[data.marks["status"] == "valid"]
        name = "distance" if spec.x == "distance" else spec.x_title
        name = name or data.measured_x_column.split(".")[-1].replace("_", " ")
        statement = caption_statements.distance_order_statement(
            valid, "position", spec.metric, name.lower()
        )
    if statement is None and "x" in data.axes and data.axes["x"].is_numeric:
        statement = caption_statements.change_along_x_statement(data)
    return statement


def _missing_statement(data: FigureData) -> str:
    """Return the number of marks without a value, by status; empty when all have a value."""
    numbers, widths = data.marks["status"].value_counts().to_dict(), None
    if PREDICTED in numbers:
        low, high, value = (data.marks[f"predicted_{name}"] for name in ("low", "high", "value"))
        widths = (high - low) / value / 2.0
    return write_text(
        "captions",
        "missing",
        numbers=numbers,
        noun=data.mark_noun,
        status_texts=STATUS_TEXTS,
        look="hollow" if data.spec.kind == "lines" else "hatched",
        widths=widths,
    )


def _range_statement(data: FigureData, valid: pd.DataFrame, differ: bool | None) -> str:
    """Return a text with the best and the worst mark, or with the range if none differ."""
    less = less_is_better(data.spec.metric)
    ordered = valid.sort_values("median", ascending=less, kind="stable")
    best, worst = mark_rows(ordered.iloc[[0, -1]])
    return write_text(
        "captions",
        "range",
        metric=data.spec.metric,
        marks=len(valid),
        noun=data.mark_noun,
        most_replicates=valid["n"].max(),
        best=Estimate.of_cell(best),
        worst=Estimate.of_cell(worst),
        places=[mark_location_text(mark, data) for mark in (best, worst)],
        differ=differ,
        judged=is_performance_metric(data.spec.metric),  # a count is neither good nor bad
        less=less,
    )


def _relation_statement(data: FigureData, differ: bool | None) -> str | None:
    """Return how the values at farther relations compare with those at the nearest relation."""
    nearest, ratios = _relation_ratios(data)
    # Many cells together can show a difference that is below the noise of each cell.
    clear = any(ratio.is_outside_interval(1.0) for ratio in ratios.values())
    if not ratios or (differ is False and not clear):
        return None
    values = {"nearest": _RELATIONS[nearest], "relations": _RELATIONS, "ratios": ratios}
    return write_text("captions", "relations", metric=data.spec.metric, **values)


def _relation_ratios(data: FigureData) -> tuple[str, dict[str, Estimate]]:
    """Return the nearest relation, and the ratio of each farther relation to it.

    Without ratios if few targets are accessed from every relation: such ratios would compare
    targets too.
    """
    rows = data.measurements[data.measurements["status"] == "valid"]
    targets = rows.groupby("relation")["target"].nunique().to_dict()
    found = [name for name in _RELATIONS if name in targets]
    few = _MOST_TARGETS * rows["target"].nunique()
    comparable = all(rows[column].nunique() <= 1 for column in ("kernel", "initiator_kind"))
    comparable = comparable and len(found) == len(targets)
    if len(found) < 2 or not comparable or min(targets.values()) < few:
        return "", {}
    near = rows[rows["relation"] == found[0]]
    ratios = {
        name: estimate_group_ratio_paired_by_block(rows[rows["relation"] == name], near)
        for name in found[1:]
    }
    return found[0], {name: ratio for name, ratio in ratios.items() if ratio.n}

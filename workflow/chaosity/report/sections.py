"""Make sections of a report's page: figures, experiments, the machine and its changes.

The text on an analysis of variance begins with a sentence for readers who do not know F tests. The
table of the variation and the levels of each factor follow.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from chaosity import __version__
from chaosity.components import (
    ComponentState,
    component_differences,
    component_value_text,
    key_as_words,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.figures.figure_files import FigureEntry
from chaosity.figures.marks import reasons_with_counts
from chaosity.records.record_files import time_to_the_minute
from chaosity.report.best_places_of_resources import DRIVE_SET_TEXTS
from chaosity.report.measured_run import Run, unmet_note_sentences
from chaosity.report.problems import load_in_words
from chaosity.result_folders import explain_command_line
from chaosity.statistics.anova import (
    IMPORTANT_FROM_PERCENT,
    LOCAL,
    REMOTE,
    AnovaResult,
    AnovaStudy,
    p_value_text,
    variation_percent_text,
)
from chaosity.statistics.cell_summary import (
    compare_neighbouring_periods,
    compute_outlier_mask,
    summarise_cells,
)
from chaosity.statistics.estimates import Estimate, Ratio, change_text, confidence_text
from chaosity.statistics.linear_models import MOST_LEVELS_IN_PAIRS
from chaosity.text_templates import (
    FORMATS,
    TEMPLATES,
    fill_text_template,
    text_of_macro,
    texts_of_yaml_file,
)
from chaosity.topology.devices import accelerator_texts
from chaosity.units import format_count, group_thousands, join_with_and, metric_in_words

# Largest number of marks of a figure that the page shows as SVG. A figure with more marks is shown
# as PNG, since an SVG of it takes a browser about a second and makes the page a megabyte larger.
_MOST_INLINE_MARKS = 3000
# Pixels on a screen for a typographic point of a figure. The sizes of figures are made for paper.
# On a screen, which is farther away, figures are 25 % larger.
_PIXELS_PER_POINT = 4.0 / 3.0 * 1.25
_BACKTICKS_PATTERN = re.compile(r"`([^`]+)`")
# Finds the third number in the view box of an SVG, which is the figure's width in points.
_WIDTH_IN_VIEW_BOX = re.compile(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)')


@dataclass(frozen=True)
class FigureSection:
    """A figure on a page."""

    file: FigureEntry  # the figure's files, title, caption and values
    svg: str | None  # the drawing; None for a figure that consists of tables alone
    width_pixels: int  # width of the drawing on a screen


def figure_section(figure: FigureEntry, folder: Path) -> FigureSection:
    """Return a figure for a page; `folder` has the files of the figure.

    The drawing is the SVG, or the PNG if the figure has very many marks.
    """
    if not (figure.svg and figure.png):
        return FigureSection(figure, None, 0)
    text = (folder / figure.svg).read_text(encoding="utf-8")
    found = _WIDTH_IN_VIEW_BOX.search(text)
    width = round(float(found[1]) * _PIXELS_PER_POINT) if found else 0
    if text.count('class="mark"') > _MOST_INLINE_MARKS:
        text = _html_image("image/png", (folder / figure.png).read_bytes(), "drawing of many marks")
    return FigureSection(figure, text, width)


def path_relative_to_report(path: Path, output: Path) -> str:
    """Return a path as a URL that is relative to the folder of the page `output`."""
    # A colon in a folder's name is quoted, since to a browser a colon ends the scheme of a URL.
    return quote(Path(os.path.relpath(path, output.parent)).as_posix(), safe="/+=,~")


def svg_as_image(data: bytes, description: str, where: str) -> str:
    """Return another program's SVG as an HTML image, in which no script can run.

    Raises:
        UserError: the bytes are not an SVG document; the error names the file `where`.
    """
    if b"<svg" not in data or not data.rstrip().endswith(b"</svg>"):
        raise UserError("the file is not an SVG file", where)
    return _html_image("image/svg+xml", data, description)


def _html_image(kind: str, data: bytes, description: str) -> str:
    return f'<img alt="{escape(description)}" src="data:{kind};base64,{b64encode(data).decode()}">'


def text_as_html(value: object) -> object:
    """Return a text as HTML, and any other value, such as a drawing, unchanged.

    No line ends between a number and its per cent sign, or between "n =" and its value. Words in
    backticks are shown as code.
    """
    if type(value) is not str:
        return value
    text = str(escape(value)).replace(" %", "\N{NO-BREAK SPACE}%")
    text = text.replace("n = ", "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return Markup(_BACKTICKS_PATTERN.sub(r"<code>\1</code>", text))


def render_page(template: str, **values: object) -> str:
    """Return the HTML of a page template; texts are escaped, and drawings inserted unchanged."""
    return _html_environment().get_template(template).render(**values)


@cache
def _html_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES / "report", TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text_as_html,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (change_text, format_cpu_list, p_value_text, variation_percent_text, text_of_macro)
    environment.globals |= FORMATS | {function.__name__: function for function in texts}
    return environment


_VARIANCE_ANALYSIS_TEXTS = "variance_analysis"
# Least percentage of the variation at which the text says how much of it the relation explains.
_LEAST_NAMED_RELATION_PERCENT = 50.0
# Largest number of combinations of levels of an interaction that the page lists; more are only
# counted.
_MOST_SHOWN_COMBINATIONS = 24


def analysis_sections(run: Run, experiment: str) -> Iterator[dict[str, Any]]:
    """Yield the values that the page shows of each analysis of variance of an experiment.

    `sentence` is the conclusion. `remote` is a text that compares remote with local values, or
    None. `terms` has the rows of the table of variation, without the row of the total. `levels` has
    the rows of each factor. `interactions` has the rows of each significant or important
    interaction. If a factor or interaction has too many rows, it has their number `omitted`
    instead.
    """
    for study, analysis in run.variance_analyses:
        if study.experiment == experiment:
            yield _analysis_section(study, analysis)


def _analysis_section(study: AnovaStudy, analysis: AnovaResult) -> dict[str, Any]:
    factors = join_with_and(list(map(_words_of_column, study.factors)))
    significant = analysis.analysed.significant_below
    limits = {"significant": significant, "important": IMPORTANT_FROM_PERCENT}
    sentences = {"analysis": analysis, "left_out": study.left_out, **limits}
    return {
        "metric": study.metric,
        "title": text_of_macro(
            _VARIANCE_ANALYSIS_TEXTS,
            "title",
            study=study,
            factors=factors,
            drive_sets=DRIVE_SET_TEXTS,
        ),
        "sentence": _with_words_for_factors(analysis.conclusion, study),
        "remote": _remote_against_local_text(study, analysis),
        "terms": [
            replace(
                term,
                name=_with_words_for_factors(term.name, study),
                sentence=_with_words_for_factors(term.sentence or "", study),
            )
            for term in analysis.terms
            if term.kind != "total"
        ],
        "levels": [_factor_levels(study, analysis, factor) for factor in analysis.factors],
        "interactions": list(_notable_interactions(study, analysis)),
        "remarks": text_of_macro(_VARIANCE_ANALYSIS_TEXTS, "remarks", **sentences),
        "confidence": confidence_text(analysis.analysed.confidence),
    }


def _words_of_column(name: str) -> str:
    """Return the words for a column: the title that its axis has, or else its name in words."""
    title = str(
        texts_of_yaml_file("axes")["titles"].get(name, name.replace("_", " ").replace(".", " "))
    )
    return title[:1].lower() + title[1:]


def _with_words_for_factors(sentence: str, study: AnovaStudy) -> str:
    """Return a sentence in which factors have words as names, and x is a multiplication sign."""
    for name in study.factors:
        sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w])", _words_of_column(name), sentence)
    return sentence.replace(" x ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def _remote_against_local_text(study: AnovaStudy, analysis: AnovaResult) -> str | None:
    """Return a text that compares remote with local values; None if the study lacks one of them."""
    contrast, share = (
        study.contrast_of_remote_against_local(analysis),
        study.percent_explained_by_relation(analysis),
    )
    if contrast is None:
        return None
    large = share is not None and share >= _LEAST_NAMED_RELATION_PERCENT
    metric = metric_in_words(study.metric)
    return text_of_macro(
        _VARIANCE_ANALYSIS_TEXTS,
        "remote",
        share=variation_percent_text(share) if share is not None and large else None,
        names=(f"{REMOTE} {metric}", f"{LOCAL} {metric}"),
        interval=contrast.difference,
        metric=study.metric,
        confidence=confidence_text(analysis.analysed.confidence),
    )


def _notable_interactions(study: AnovaStudy, analysis: AnovaResult) -> Iterator[dict[str, Any]]:
    """Yield the significant or important interactions of two factors, with their rows."""
    for name in [term.name for term in analysis.terms if term.significant or term.important]:
        if own := [each for each in analysis.interactions if each.term == name]:
            yield {
                "name": _with_words_for_factors(name, study),
                **_rows_if_few(own, _MOST_SHOWN_COMBINATIONS),
            }


def _factor_levels(study: AnovaStudy, analysis: AnovaResult, factor: str) -> dict[str, Any]:
    """Return the rows of a factor's levels if they are few, and a text on the widest difference."""
    own = [each for each in analysis.effects if each.factor == factor]
    pairs = (pair for pair in analysis.contrasts if pair.factor == factor)
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    confidence = confidence_text(analysis.analysed.confidence)
    texts = {"pair": widest, "metric": study.metric, "confidence": confidence}
    extremes = (
        None if widest is None else text_of_macro(_VARIANCE_ANALYSIS_TEXTS, "extremes", **texts)
    )
    return {
        "factor": _words_of_column(factor),
        "extremes": extremes,
        **_rows_if_few(own, MOST_LEVELS_IN_PAIRS),
    }


def _rows_if_few(rows: list[Any], most: int) -> dict[str, Any]:
    """Return `rows`, or if there are more than `most` rows, only their number as `omitted`."""
    few = len(rows) <= most
    return {"rows": rows if few else [], "omitted": 0 if few else len(rows)}


def experiment_section(run: Run, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the page shows of an experiment, whose YAML is `document`.

    `without_points` has the titles of figures for which this machine has no points. `broken` maps
    the title of each figure that could not be drawn to the error. `remarks` has the metrics without
    a value, each with the reason, and the messages of tools in valid records.
    """
    name = document["experiment"]
    rows = run.measurements.where(experiment=name).rows
    figures = [figure for figure in run.figures if figure.experiment == name]
    summaries = [summary for summary in run.record_summaries if summary.experiment == name]
    return {
        "title": document.get("title", name.replace("_", " ").capitalize()),
        "document": document,
        "figures": [figure_section(each, run.figures_folder) for each in figures if each.csv],
        "without_points": [each.title for each in figures if not each.csv and not each.problem],
        "broken": {each.title: each.problem for each in figures if each.problem},
        "analysis": list(analysis_sections(run, name)),
        "remarks": [*_lines_on_unmeasured_metrics(rows), *unmet_note_sentences(summaries)],
    }


def _lines_on_unmeasured_metrics(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each load and each reason why metrics of valid rows have no value."""
    without = rows[(rows["status"] == "valid") & rows["value"].isna()]
    metrics: dict[tuple[str, str], list[str]] = {}  # (load, reason) -> metrics
    for key, group in without.groupby(["load", "metric"], sort=False):
        load, metric = map(str, key)
        total = ((rows["load"] == load) & (rows["metric"] == metric)).sum()
        for reason in reasons_with_counts(group["reason"], int(total), "value"):
            metrics.setdefault((load, reason), []).append(metric_in_words(metric))
    for (load, reason), names in metrics.items():
        yield f"{join_with_and([*dict.fromkeys(names)])} of {load}: not measured: {reason}"


# `Facts` maps a name to a value. `FactGroups` maps a part of the host to its facts.
Facts = dict[str, str]
FactGroups = dict[str, Facts]
# The report says which precision at least 90 % of the cells reach, and the worst precision.
_SHARE_OF_CELLS_WITH_PRECISION = 0.9


def fill_fact_templates(templates: Mapping[str, str], **values: object) -> Facts:
    """Return name of a fact -> its filled-in template, without empty results."""
    texts = {name: fill_text_template(template, **values) for name, template in templates.items()}
    return {name: text for name, text in texts.items() if text}


def machine_section(run: Run) -> dict[str, Any]:
    """Return the values for the page on the machine: facts, nodes, drives, lstopo's drawing.

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
    """Return the versions of all programs, and all facts of the component "system"."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in run.system_facts.items():
        if isinstance(value, Mapping):
            groups[key] = dict(value)
        elif key != "component":
            groups["general"][key] = value
    groups.pop("tools", None)
    state = {"Programs": _versions_of_programs(run)}
    for key, values in groups.items():
        if values:
            title = key_as_words(key)
            state[title[:1].upper() + title[1:]] = {
                key_as_words(name): component_value_text(name, value)
                for name, value in values.items()
            }
    return state


def _versions_of_programs(run: Run) -> Facts:
    """Return program -> its version, or several versions if records differ."""
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
    # "memory: pages" and "storage: pages" are one check of two loads, so the load is removed.
    checked = Counter(check["name"].split(": ")[-1] for check in checks)
    passed = Counter(check["name"].split(": ")[-1] for check in checks if check["passed"])
    replicates = rows.groupby("experiment", sort=False)["replicate"]
    of_points = rows.groupby(["experiment", "point"])["replicate"].nunique()
    measurements = rows[["experiment", "point", "replicate", "status"]].drop_duplicates()
    # The section on methods has `chaosity explain` of one row as an example, if possible of a valid
    # row.
    explained = rows.sort_values(
        "status", key=lambda status: status != "valid", kind="stable"
    ).iloc[0]
    values = fill_fact_templates(
        texts["values"],
        config=config,
        number={
            "points": len(of_points),
            "intervals": len(known),
            "moderated": len(moderated),
            "median_precision": known["precision"].median(),
            "precision_of_most": known["precision"].quantile(_SHARE_OF_CELLS_WITH_PRECISION),
            "outliers": int(compute_outlier_mask(rows).sum()) if tested.any() else 0,
            "tested_for_outliers": int(cells.loc[tested, "n"].sum()),
        },
        replicates=replicates.max().astype(int).to_dict(),
        measured=measurements["status"].value_counts().to_dict(),
        explain_command=explain_command_line(run.folder, str(explained["point"])),
        similar_values=_range_text(moderated["prior_cells"]),
        more_replicates=_range_text(moderated["prior_freedom"].round()),
        most_cells=_SHARE_OF_CELLS_WITH_PRECISION,
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
    """Return the lowest and the highest whole number as text: "3 to 8"; "" without values."""
    ends = [] if values.empty else [int(values.min()), int(values.max())]
    return " to ".join(map(str, dict.fromkeys(ends)))


def _stopping_rules(run: Run) -> Facts:
    """Return category of loads -> stopping rule in words, for each measured category."""
    measured = set(run.measurements.rows["category"].dropna())
    return {
        f"Stopping rule, {category.replace('_', ' ')}": fill_text_template(
            texts_of_yaml_file("methods")["stopping_rule"], rule=rule
        )
        for category, rule in (run.config_with_plan_and_notes.get("stopping") or {}).items()
        if category in measured
    }


# Largest number of changes that the report shows, the newest first; the files of components have
# all changes.
_MOST_SHOWN_CHANGES = 4
# Largest number of points with losses in the table of a change, and also of points with gains.
_MOST_SHOWN_LOSSES_OR_GAINS = 6
# Component -> states of the component, see `components.read_component_histories`.
Histories = Mapping[str, Sequence[ComponentState]]


def component_changes_section(run: Run) -> dict[str, Any] | None:
    """Return the changes of components, with values before and after each change, or None.

    The newest change comes first. `lowest` and `highest` have the points with the largest losses
    and gains. `omitted` is the number of points or changes that are not shown. `not_comparable` is
    the number of points whose definition also changed.
    """
    # The room `compare` cannot be used here, since different cells have different periods.
    cells = compare_neighbouring_periods(run.history)
    groups = [(json.loads(str(text)), rows) for text, rows in cells.groupby("changed", sort=False)]
    groups.sort(key=lambda item: max((at for _, at in item[0].values()), default=""), reverse=True)
    shown = [
        _change_of_components(changed, rows, run.component_histories)
        for changed, rows in groups[:_MOST_SHOWN_CHANGES]
    ]
    return {"changes": shown, "omitted": len(groups) - len(shown)} if shown else None


def _change_of_components(
    changed: Mapping[str, tuple[str | None, str | None]], rows: pd.DataFrame, histories: Histories
) -> dict[str, Any]:
    """Return a change: the components that changed together, and the points with new values."""
    comparable = rows[rows["comparable"]].sort_values("ratio", kind="stable")
    lowest = list(map(_change_of_point, comparable.to_dict("records")))
    number, highest = len(lowest), list[Any]()
    if number > 2 * _MOST_SHOWN_LOSSES_OR_GAINS:
        lowest, highest = (
            lowest[:_MOST_SHOWN_LOSSES_OR_GAINS],
            lowest[: -_MOST_SHOWN_LOSSES_OR_GAINS - 1 : -1],
        )
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
    """Return a component's name, what happened to the component and when, and its new values."""
    contents = {state.since: dict(state.content or {}) for state in states}
    old, new = contents.get(str(before), {}), contents.get(str(after), {})
    return {
        "name": name,
        "verb": "changed" if old.get("serial") == new.get("serial") else "was replaced",
        "before": time_to_the_minute(before),
        "after": time_to_the_minute(after),
        "facts": {
            key: text or "changed, see the component's file"
            for key, text in component_differences(old, new)
        },
    }


def _effect_sentence(rows: pd.DataFrame) -> str:
    """Return a text on how many values increased, decreased or did not change, and by how much."""
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


def _change_of_point(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Return a cell's values before and after a change, and their ratio (after / before)."""
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

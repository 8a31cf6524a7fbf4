"""``chaosity explain``: print how a value of the report was computed from the raw numbers."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import RESULTS_FOLDER, echo, print_line
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.place_names import initiator_to_target_name, parse_place_name, place_in_words
from chaosity.records.record_files import current_record_path, load_record, read_regular_file
from chaosity.records.record_format import LoadRecord, Record
from chaosity.result_folders import path_argument
from chaosity.runner.metric_values import (
    common_time_span,
    common_window_of_loads,
    counts_in_window,
    method_of_metric,
    sample_quantile_in_window,
    sample_spans,
    samples_in_spans,
    series_by_load,
    series_of_pausing_loads,
    spans_without_pauses,
)
from chaosity.runner.tool_output import extract_values
from chaosity.units import choose_scale, format_count, format_quantity

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.store.measurements import Measurements

# Largest number of names that an error message lists.
_MOST_LISTED_NAMES = 12


@click.command("explain")
@click.argument("folder", type=RESULTS_FOLDER)
@click.argument("point")
@click.option("--experiment", help="Experiment, if several experiments have this point.")
@click.option("--load", help="Name of a load of the point. Default: all loads.")
@click.option("--metric", help="Name of a metric. Default: all metrics of the loads.")
@click.option("--replicate", type=int, help="Explain only this replicate: 1, 2, ... Default: all.")
@click.option("--samples", is_flag=True, help="Also print each sample, and each counted value.")
def explain_value_command(
    folder: Path,
    point: str,
    experiment: str | None,
    load: str | None,
    metric: str | None,
    replicate: int | None,
    samples: bool,
) -> None:
    """Print how the values of a POINT were computed.

    FOLDER is results/HOST/CONFIGURATION. POINT is a point's name, such as memory=node0+node1+triad,
    or a part of a name: `node0+node1` lists the points with this part. POINT can also be a path in
    the words of a finding: 'package 0 -> package 1' lists points on this path. For each value, the
    command prints the median and the interval with their formulas. For each replicate, the command
    prints the record, command lines, programs, formula, inputs and checks.

    Example: chaosity explain results/demo/paper_server memory=node0+node4+triad
    """
    from scipy.stats import t

    from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_from_records import build_tidy_table

    if not (folder / "points").is_dir():
        raise UserError("the folder has no points", str(folder), "use results/HOST/CONFIGURATION")
    table = with_variance_priors(
        Measurements.from_table(build_tidy_table(folder / "points", folder))
    )
    if table.is_simulated:
        echo("SIMULATED: this machine does not exist.")
    rows = table.rows
    asked = {"experiment": experiment, "point": point, "load": load, "metric": metric}
    if point in set(rows["experiment"]) and experiment is None:
        remedy = f"choose a point of it with --experiment {point} and a part of the point's name"
        raise UserError(f"{point} is an experiment, not a point", str(folder), remedy)
    if ends := _ends_of_path(point):
        rows = _rows_on_path(rows, ends, folder)
        if experiment is not None:
            full_name = _full_name(experiment, rows["experiment"], "experiment", folder)
            rows = rows[rows["experiment"] == full_name]
        asked["point"] = _only_point_on_path(Measurements(rows), ends, folder)
    for column, name in asked.items():
        if name is not None:
            rows = rows[rows[column] == _full_name(name, rows[column], column, folder)]
    if len(names := sorted(rows["experiment"].unique())) > 1:
        what = f"several experiments have this point: {', '.join(names)}"
        raise UserError(what, point, "choose one with --experiment")
    if replicate is not None and replicate not in set(rows["replicate"]):
        last = int(rows["replicate"].max())
        raise UserError(f"replicate {replicate} is unknown", point, f"use 1 to {last}")
    for _, cell in summarise_cells(rows).iterrows():
        of_cell = rows[(rows["load"] == cell["load"]) & (rows["metric"] == cell["metric"])]
        of_cell = of_cell[
            (of_cell["initiator"] == cell["initiator"]) & (of_cell["target"] == cell["target"])
        ]
        values = of_cell.loc[of_cell["status"] == "valid", "value"].dropna().astype(float)
        quantile = None if cell["low"] != cell["low"] else t.ppf(0.975, cell["freedom"])
        for line in _cell_lines(cell, [*values], quantile):
            print_line(line)
        for _, row in of_cell.iterrows():
            if replicate in (None, row["replicate"]):
                for line in explain_replicate(folder, row, every_sample=samples):
                    echo(line)
        echo()


def _ends_of_path(text: str) -> tuple[str, str] | None:
    """Return the names of the two places in a text such as "package 0 -> node 3".

    None if the text is no path. A name of a point never contains such an arrow.
    """
    ends = re.split(r"\s*(?:->|→)\s*", text.strip().lower())
    if len(ends) != 2:
        return None
    without_memory = (re.sub(r"^(the )?memory of ", "", end) for end in ends)
    named = (re.sub(r"^(the )?drives of (.+)", r"\2drives", end) for end in without_memory)
    source, target = (re.sub(r"\s+", "", end) for end in named)
    return source, target


def _rows_on_path(rows: pd.DataFrame, ends: tuple[str, str], folder: Path) -> pd.DataFrame:
    """Return the rows from one place to another; between packages, also rows of their nodes.

    Raises:
        UserError: a name is not that of a place, or no point leads from the first to the second.
    """
    if not all(ends):
        remedy = "name both places, such as 'node 0 -> node 1'"
        raise UserError("a place of the path has no name", str(folder), remedy)
    exact = rows[(rows["initiator"] == ends[0]) & (rows["target"] == ends[1])]
    if not exact.empty:
        return exact
    nodes = [_nodes_of_place(end, folder) for end in ends]
    for end, own in zip(ends, nodes, strict=True):
        known = set(rows["initiator"]) | set(rows["target"])
        if not own and end not in known:
            near = difflib.get_close_matches(end, sorted(known), _MOST_LISTED_NAMES)
            remedy = f"use {' or '.join(near)}" if near else "use places such as node0 or package1"
            raise UserError(f"there is no place {end}", str(folder), remedy)
    sides = (("initiator", nodes[0]), ("target", nodes[1]))
    inside = [
        rows[f"{side}_nodes"].map(lambda text, own=own: _is_within(text, own)).astype(bool)
        | (rows[side] == end)
        for (side, own), end in zip(sides, ends, strict=True)
    ]
    found = rows[inside[0] & inside[1]]
    if (target := parse_place_name(ends[1])) and target.has_drives:
        found = found[found["drives"].notna()]
    if found.empty:
        what = f"no point leads from {place_in_words(ends[0])} to {place_in_words(ends[1])}"
        raise UserError(what, str(folder), "use two places that a point of the plan connects")
    return found


def _nodes_of_place(name: str, folder: Path) -> frozenset[int]:
    """Return the nodes of a package or of a place that names its nodes; none of other places."""
    place = parse_place_name(name)
    if place is None:
        return frozenset()
    if place.kind != "package":
        return frozenset(place.nodes_in_name)
    from chaosity.topology.topology_model import read_topology

    topology = read_topology(folder / "topology.json")
    packages = topology.package_of_node if topology else {}
    return frozenset(node for node, package in packages.items() if package in place.indices)


def _is_within(text: object, nodes: frozenset[int]) -> bool:
    """Return whether a text such as "0-3" names at least one node, and only nodes of `nodes`."""
    from chaosity.store.measurements import parse_nodes

    named = parse_nodes(text)
    return bool(named) and nodes.issuperset(named)


def _only_point_on_path(measurements: Measurements, ends: tuple[str, str], folder: Path) -> str:
    """Return the name of the only point among the rows of a path.

    Raises:
        UserError: there are several points. The error names the worst point of each finding on this
            path, and a point of each experiment.
    """
    points = measurements.rows[["experiment", "point"]].drop_duplicates()
    if len(points) == 1:
        return str(points["point"].iloc[0])
    what = f"{len(points)} points lead from {' to '.join(map(place_in_words, ends))}"
    if len(points) <= _MOST_LISTED_NAMES:
        names = map(shlex.quote, sorted(set(points["point"])))
        raise UserError(what, str(folder), f"explain {' or '.join(names)}")
    worst = _worst_points_of_findings(measurements, ends, folder)
    examples = dict.fromkeys(worst, "the worst point of a finding")
    for experiment, own in points.groupby("experiment", sort=False)["point"]:
        number = format_count(len(own), "point")
        examples.setdefault(str(own.iloc[0]), f"one of {number} of {experiment}")
    named = [f"{shlex.quote(name)} ({which})" for name, which in examples.items()]
    raise UserError(what, str(folder), f"explain one of them, such as {' or '.join(named)}")


def _worst_points_of_findings(
    measurements: Measurements, ends: tuple[str, str], folder: Path
) -> Iterator[str]:
    """Yield the name of the worst point of each finding on a path, if there is a findings.json."""
    from chaosity.report.problems import read_anomalies

    for anomaly in read_anomalies(folder):
        places = (str(anomaly.initiator), str(anomaly.target))
        is_on_path = ends == places or initiator_to_target_name(*ends) in anomaly.components
        if is_on_path and (found := anomaly.worst_point(measurements)):
            yield found[1]


def _cell_lines(cell: pd.Series, values: list[float], t: float | None) -> Iterator[str]:
    """Yield lines on how the median and the interval of a cell follow from its replicates."""
    scale = choose_scale(cell["metric"], [cell["median"]])
    interval = f", 95 % interval {scale.number(cell['low'])} to {scale.number(cell['high'])}"
    median = scale.text(cell["median"]) if values else "no value"
    yield f"{cell['metric']} of {cell['load']}: {median}{interval if t else ''}"
    yield (
        f"  n = {cell['n']}, {cell['n_failed']} failed, {cell['n_missing']} missing; "
        f"host {cell['host']}, configuration {cell['configuration']}, "
        f"experiment {cell['experiment']}, point {cell['point']}, "
        f"{cell['initiator']} -> {cell['target']}"
    )
    if values:
        yield f"  median of {', '.join(map(_digits, values))}"
    if t is None:
        return
    formula = f"mean ± t x sqrt(variance / {cell['counted']})"
    formula = f"exp({formula}) of the logarithms" if cell["is_positive"] else formula
    yield f"  interval: {formula}{', without outliers' * (cell['counted'] < cell['n'])}"
    own = f"own variance {_digits(cell['own_variance'])}, {cell['counted'] - 1} degrees of freedom"
    own = "no variance of its own" if cell["counted"] == 1 else own
    prior = (
        f"; moderated by the prior of {cell['prior_cells']} cells of one kind, variance "
        f"{_digits(cell['prior_variance'])} with {_digits(cell['prior_freedom'])} degrees of "
        f"freedom: {_digits(cell['variance'])}, {_digits(cell['freedom'])}"
    )
    mean_and_t = f"mean {_digits(cell['mean'])}, t {_digits(t)}"
    yield f"    {mean_and_t}, {own}{prior if cell['prior_cells'] else ''}"
    yield "    An interval that does not contain the median is widened to the median."


def _digits(number: float) -> str:
    """Return a number with 12 digits, enough to check a formula, without binary rounding."""
    return f"{number:.12g}"


def _full_name(name: str, column: pd.Series, kind: str, folder: Path) -> str:
    """Return the value of a column that equals `name`, or else the only one that contains it."""
    names = sorted(map(str, column.unique()))
    found = [name] if name in names else [each for each in names if name in each]
    if len(found) == 1:
        return found[0]
    if not names:
        what = "no point of the folder has a value, or a reason for a missing value"
        raise UserError(what, str(folder), "measure the host first")
    what = f"several names of a {kind} contain {name}" if found else f"there is no {kind} {name}"
    # Of many names, only similar ones help a reader.
    cutoff = 0.6 if len(names) > _MOST_LISTED_NAMES else 0.0
    near = found or difflib.get_close_matches(name, names, _MOST_LISTED_NAMES, cutoff)
    if not near:
        remedy = f"use a name below {folder}/points, or a path such as 'node 0 -> node 1'"
        raise UserError(what, str(folder), remedy)
    more = f" or {len(near) - _MOST_LISTED_NAMES} more" if len(near) > _MOST_LISTED_NAMES else ""
    raise UserError(what, str(folder), f"use {' or '.join(near[:_MOST_LISTED_NAMES])}{more}")


_FORMULA_OF_COUNT = (
    "sum over units and events of sign x count x longest enabled time / running time, of the "
    "processor counter"
)
_FORMULA_OF_RATE = (
    "amount / seconds of the window; a sample across an edge of the window counts in part"
)
_FORMULA_BY_NODE = "for each node: amount / seconds that all threads spent on the node x threads"


_CHECK_WORDS = {True: "met", False: "NOT met", None: "unknown"}


def explain_replicate(folder: Path, row: pd.Series, *, every_sample: bool) -> Iterator[str]:
    """Yield lines on how the value of a replicate was computed from its record.

    `folder` is ``results/HOST/CONFIGURATION``, and `row` is the replicate's row of the tidy table.
    With `every_sample`, the lines have each sample too.

    Raises:
        UserError: the record is damaged.
    """
    path = folder / current_record_path(row["experiment"], row["point"], int(row["replicate"]))
    with malformed_as_user_error("the record is not complete", str(path)):
        yield from _replicate_lines(folder, path, row, every_sample=every_sample)


def _replicate_lines(
    folder: Path, path: Path, row: pd.Series, *, every_sample: bool
) -> Iterator[str]:
    """Yield lines on a replicate; `path` is the file of its record, which may be missing."""
    value = None if row["value"] != row["value"] else float(row["value"])
    quantity = format_quantity(row["metric"], value)
    shown = row["reason"] if value is None else f"{quantity} ({_digits(value)})"
    yield f"  replicate {row['replicate']}, {row['status']}: {shown}"
    if not path.exists():
        return
    record = load_record(path)
    yield f"    record: {path}, measured {record['finished_at']} as number {record['order']}"
    planned = folder / "points" / row["experiment"] / f"{row['point']}.json"
    again = ["chaosity", "measure", path_argument(planned), "--replicate", str(row["replicate"])]
    yield f"    again: {shlex.join(again)}"
    for load in record["loads"]:
        environment = [f"{name}={text}" for name, text in load["environment"].items()]
        yield f"    command of {load['name']}: {shlex.join([*environment, *load['command']])}"
        program = load.get("program") or {}
        facts = [str(program[key]) for key in ("version", "path") if program.get(key)]
        yield f"    program of {load['name']}: {', '.join(facts) or 'unknown'}"
    named = (load for load in record["loads"] if load.get("role", load["name"]) == row["load"])
    own = next((load for load in named if load["initiator"]["name"] == row["initiator"]), None)
    if own is None:
        raise UserError(f"the record has no load {row['load']}", str(path))
    point = json.loads(read_regular_file(planned))
    metric = row["metric"]
    sources = [load["metrics"].get(metric, {}) for load in point["loads"]]
    former = next((source["formerly"] for source in sources if source.get("formerly")), metric)
    derived = [each for each in point.get("relative", []) if each["name"] == metric]
    if derived:
        yield f"    formula: derived from other values: {json.dumps(derived)}"
    elif value is not None:
        name = metric if metric in own["metrics"] else former
        for line in explain_record_value(record, own, name, every_sample=every_sample):
            yield f"    {line}"
    for check in record["verdict"]["checks"]:
        yield f"    check {_CHECK_WORDS[check['passed']]}: {check['name']}: {check['detail']}"


def explain_record_value(
    record: Record, load: LoadRecord, metric: str, *, every_sample: bool
) -> Iterator[str]:
    """Yield lines with the formula of a metric's value in a valid record, and with its inputs.

    `metric` is the name of the metric in this record. With `every_sample`, the lines have all
    samples or counts too.
    """
    source, counted = load["metrics"][metric], load.get("counted", {})
    method = method_of_metric(load, metric, alone=len(record["loads"]) == 1)
    if method == "output":
        names = ("in", "json", "event", "key", "regex", "combine", "scale", "amount")
        where = ", ".join(f"{name} {source[name]}" for name in names if name in source)  # type: ignore[literal-required]
        yield f"formula: the number in the tool's output: {where}"
        yield f"inputs: {', '.join(map(str, extract_values(source, load['outputs'])))}"
    elif method == "counter":
        yield f"formula: {_FORMULA_OF_COUNT} {source['counter']}"
        for count in counted[source["counter"]]["counts"]:
            times = f"enabled {count['time_enabled_ns']} ns, running {count['time_running_ns']} ns"
            yield f"unit {count['cpu']}: {count.get('sign', 1)} x {count['count']}, {times}"
    else:
        series = series_by_load(record)
        several = len(record["loads"]) > 1
        window = common_window_of_loads(record, series) if several else None
        begin, end = window or common_time_span(series[load["name"]])
        spans = spans_without_pauses(series_of_pausing_loads(record, series) * several, begin, end)
        kind = "all loads" if several else "all threads"
        times = f"{_digits(begin)} to {_digits(end)} s on the host's monotonic clock"
        yield f"window in which {kind} ran: {times}"
        if method == "rate":
            yield f"formula: {_FORMULA_OF_RATE}"
            parts = list(samples_in_spans(series[load["name"]], spans))
            amount, seconds = sum(part for *_, part in parts), sum(e - b for b, e in spans)
            yield f"inputs: {_digits(amount)} in {_digits(seconds)} s, from {len(parts)} samples"
            if every_sample:
                yield from (
                    f"sample {_digits(b)} to {_digits(e)} s: {_digits(part)}"
                    for b, e, part in parts
                )
        elif method == "quantile":
            yield from _quantile_lines(load, metric, (begin, end), every_sample=every_sample)
        else:
            keys, threads = source["by_node"], load["initiator"]["threads"]
            yield f"formula: {_FORMULA_BY_NODE}, {threads}; a sample across an edge counts in part"
            lines = list(sample_spans(load["progress"] or {}, load["outputs"]["stdout"]))
            for node in map(str, load["target"]["nodes"]):
                amount, time = (
                    sum(part for *_, part in samples_in_spans([of_node], [(begin, end)]))
                    for of_node in (
                        [(b, e, line[keys[key]].get(node, 0)) for b, e, line in lines]
                        for key in ("amount", "time")
                    )
                )
                spent = f"{_digits(time)} units of the sample's time"
                yield f"node {node}: {_digits(amount)} in {spent}"


def _quantile_lines(
    load: LoadRecord, metric: str, window: tuple[float, float], *, every_sample: bool
) -> Iterator[str]:
    """Yield lines with the formula of a quantile, and with the number of smaller values."""
    source, progress = load["metrics"][metric], load["progress"] or {}
    output, key = load["outputs"]["stdout"], source["key"]
    counts = counts_in_window(progress, key, output, *window)
    value = sample_quantile_in_window(progress, source, output, *window)
    share = source["quantile"]
    yield f"formula: the smallest value that at least {share} of all values do not exceed"
    below = sum(number for each, number in counts.items() if each < value)
    yield (
        f"inputs: {counts.total()} {key} in the samples of the window, {below} below the value, "
        f"{counts[value]} at the value"
    )
    if every_sample:
        yield from (f"value {each!r}: {counts[each]} {key}" for each in sorted(counts))

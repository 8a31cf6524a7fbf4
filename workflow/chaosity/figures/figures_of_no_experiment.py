"""Draw figures that no experiment declares: nightly checks over time, residuals of an analysis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from chaosity.figures.figure_files import FigureFile, write_csv
from chaosity.figures.vega_lite import Drawing, Row, write_drawing
from chaosity.health.check_history import CheckHistory, ValueSeries
from chaosity.statistics.anova import AnovaResult
from chaosity.units import choose_scale, format_count, format_quantity, metric_in_words

_NAME, _TITLE = "checks_over_time", "Checks over time"
_MOST_PANELS, _MOST_COMPONENTS = 6, 6  # of changed values, the newest; nobody reads more
# A panel shows at least this many per cent above and below the first level.
_LEAST_RANGE = 5.0
_LONGEST_TEXT = 100
_DAY = 86_400_000.0  # milliseconds, the unit of dates in Vega-Lite


def draw_checks_over_time(history: CheckHistory, place: str, directory: Path) -> FigureFile:
    """Draw the figure of a host's nightly checks and write its files, with all values as CSV.

    The figure has a panel for each changed value, and one panel for all other values. `place` is a
    text with the host and the configuration.
    """
    caption = " ".join(history.sentences())
    write_drawing(_drawing_of_checks(history, place), _NAME, caption, directory)
    write_csv(history.table(), directory / f"{_NAME}.csv")
    svg, png, csv, vega_lite = (f"{_NAME}.{kind}" for kind in ("svg", "png", "csv", "vl.json"))
    identity = (_NAME, "", "lines", _TITLE, caption, None, None)
    return FigureFile(*identity, svg=svg, png=png, csv=csv, vega_lite=vega_lite)


def _drawing_of_checks(history: CheckHistory, place: str) -> Drawing:
    """Return the drawing: differences of values from their first level, in per cent, over dates."""
    changed = history.changed_series[:_MOST_PANELS]
    others = [each for each in history.series if all(each is not own for own in changed)]
    rows: list[Row] = []
    for series in changed:
        rows += _rows_of_changed(series)
    if others:
        rows += _rows_of_others(others)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    components = history.component_changes[-_MOST_COMPONENTS:]
    for panel in panels:
        ends = (_LEAST_RANGE, -_LEAST_RANGE)
        rows += [{"role": "least_range", "panel": panel, "value": end} for end in ends]
        for time, text in components:
            date = {"x": _milliseconds(time), "text": time[:10], "hover": f"{time[:10]}: {text}"}
            rows.append({"role": "component", "panel": panel, **date})
    if changed:
        rows.append(
            {"role": "legend", "panel": panels[0], "x": _milliseconds(history.check_times[0])}
        )
    times = history.check_times
    first, last = _milliseconds(times[0]), _milliseconds(times[-1])
    margin = max((last - first) * 0.01, 0.5 * _DAY)  # so that a single check has some space, too
    about = f"{place}, {format_count(len(times), 'check')} from {times[0][:10]} to {times[-1][:10]}"
    listed = (f"{time[:10]}: {text}"[:_LONGEST_TEXT] for time, text in components)
    title = f"{_TITLE} \N{MIDDLE DOT} SIMULATED" if history.is_simulated else _TITLE
    values = {"panels": panels, "dates": [first - margin, last + margin]}
    return Drawing(_NAME, title, " \N{MIDDLE DOT} ".join([about, *listed]), rows, values)


def _milliseconds(time: str) -> float:
    """Return a time in milliseconds since 1970; a time without a zone is UTC."""
    moment = datetime.fromisoformat(time)
    return 1000.0 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _percent(series: ValueSeries, logs: Sequence[float]) -> list[float]:
    """Return logarithms of values as differences from the first level, in per cent."""
    return [100.0 * float(np.expm1(each - series.segments[0].first)) for each in logs]


def _name(series: ValueSeries) -> str:
    return f"{'->'.join(series.check.parts)}, {metric_in_words(series.check.metric)}"


def _rows_of_changed(series: ValueSeries) -> Iterator[Row]:
    """Yield rows of a changed value: its checks, levels, changes, and intervals of their dates."""
    times, metric = [_milliseconds(time) for time in series.times], series.check.metric
    first, now = (format_quantity(metric, end) for end in series.ends)
    panel = f"{_name(series)}: {first} at first, now {now}"
    logs = [float(each) for each in np.log(series.values)]
    for x, value in zip(times, _percent(series, logs), strict=True):
        yield {"role": "check", "panel": panel, "x": x, "value": value}
    before = None
    for segment in series.segments:
        start, end = _percent(series, (segment.first, segment.last))
        begin = times[segment.begin]
        inside = {"x": begin, "x2": times[segment.end - 1], "value": start, "value2": end}
        yield {"role": "level", "panel": panel, **inside}
        if before is not None:
            low, high = (times[at] for at in segment.date_interval)
            yield {"role": "date_interval", "panel": panel, "x": low, "x2": high}
            values = (float(np.exp(each)) for each in (before.last, segment.first))
            shown = [format_quantity(metric, value) for value in values]
            date = series.times[segment.begin][:10]
            hover = f"{_name(series)}: {shown[0]} before {date}, {shown[1]} from then on"
            [level] = _percent(series, [before.last])
            change = {"x": begin, "value": level, "value2": start, "hover": hover}
            yield {"role": "change", "panel": panel, **change}
        before = segment


def _rows_of_others(series: Sequence[ValueSeries]) -> Iterator[Row]:
    """Yield a row for each check: median of all values, and ends of the band with 90 % of them."""
    panel = f"{format_count(len(series), 'further value')}: median, and the band with 90 % of them"
    found: dict[str, list[float]] = {}
    for each in series:
        percents = _percent(each, [float(value) for value in np.log(each.values)])
        for time, percent in zip(each.times, percents, strict=True):
            found.setdefault(time, []).append(percent)
    for time in sorted(found):
        low, middle, high = map(float, np.quantile(found[time], [0.05, 0.5, 0.95]))
        ends = {"value": middle, "low": low, "high": high}
        yield {"role": "band", "panel": panel, "x": _milliseconds(time), **ends}


# Maximum number of marks of a residual plot, since more marks only make the file larger. The lowest
# and the highest residual are always shown.
_MOST_MARKS = 300
# If the highest fitted value of an analysis of logarithms is more than this many times the lowest,
# the axis is logarithmic.
_WIDE = 20.0
_WORDS = "Residuals against fitted values and against normal quantiles"


def _drawing_of_residuals(analysis: AnovaResult, metric: str, title: str) -> Drawing:
    """Return the drawing with both plots of residuals; the name of `metric` ends with its unit."""
    shown = np.argsort(analysis.residuals, kind="stable")
    if len(shown) > _MOST_MARKS:
        shown = shown[np.linspace(0, len(shown) - 1, _MOST_MARKS).round().astype(int)]
    fitted, residuals = analysis.fitted[shown], analysis.residuals[shown]
    quantiles = analysis.normal_quantiles[shown]
    logs = analysis.transform == "log"
    fitted = np.exp(fitted) if logs else fitted
    scale, deviation = choose_scale(metric, fitted), float(analysis.residuals.std())
    if logs:  # a residual of logarithms is a ratio to the fitted value
        heights, unit, slope = 100.0 * np.expm1(residuals), "% of the fitted value", 100.0
    else:
        small = choose_scale(metric, residuals)
        heights, unit, slope = residuals / small.factor, small.symbol, 1.0 / small.factor
    marks = zip(fitted / scale.factor, heights, quantiles, strict=True)
    rows: list[Row] = [
        {"role": "value", "fitted": float(x), "residual": float(y), "quantile": float(quantile)}
        for x, y, quantile in marks
    ]
    rows.append({"role": "zero", "residual": 0.0})
    for end in (float(quantiles.min()), float(quantiles.max())):
        rows.append({"role": "normal", "quantile": end, "residual": deviation * slope * end})
    values = {
        "residual_title": f"Residual ({unit})" if unit else "Residual",
        "fitted_title": f"Fitted ({scale.symbol})" if scale.symbol else "Fitted",
        "fitted_scale": "log" if logs and fitted.max() > _WIDE * fitted.min() else "linear",
    }
    return Drawing("anova_residuals", title, "", rows, values)


def write_residual_plots(analysis: AnovaResult, directory: Path, name: str) -> list[Path]:
    """Plot residuals against fitted values and normal quantiles; return paths of SVG and PNG."""
    directory.mkdir(parents=True, exist_ok=True)
    title = f"Residuals of {analysis.response} by {' and '.join(analysis.factors)}"
    drawing = _drawing_of_residuals(analysis, analysis.response, title)
    write_drawing(drawing, name, _WORDS, directory)
    return [directory / f"{name}.svg", directory / f"{name}.png"]

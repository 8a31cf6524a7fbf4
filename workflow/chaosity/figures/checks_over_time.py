"""Draw the series of a host's checks: a panel for each changed value, and one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import MaxNLocator

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.draw_and_write_figures import FigureFile, write_csv, write_drawing
from chaosity.figures.panel_grid_and_series import LineStyle, draw_legend_line
from chaosity.health.check_history import CheckHistory, ValueSeries
from chaosity.health.history_table import history_table
from chaosity.units import format_count, format_quantity, metric_words

_NAME, _TITLE = "checks_over_time", "Checks over time"
# The newest changes; with more panels, nobody sees any. Letters mark changes of components.
_MOST_PANELS, _LETTERS = 6, "ABCDEF"
_PANEL, _PANEL_TITLE, _LEFT, _BELOW = 0.85, 0.25, 0.62, 0.36  # inches
# Less is noise, so that a panel shows at least this range around the first level, in per cent.
_LEAST_RANGE = 5.0
_LONGEST_TEXT = 100
_VALUES = LineStyle(color=style.COLOURS[6], marker=".", markersize=3.5, linestyle="none", zorder=2)
_LEVEL = LineStyle(color=style.COLOURS[0], marker="", lw=1.8, zorder=3)
_STEP = LineStyle(color=style.COLOURS[1], marker="", lw=1.8, zorder=3)
_INTERVAL_COLOUR = f"{style.COLOURS[1]}40"  # a quarter opaque
_LEGEND = [
    ("value of a check", _VALUES),
    ("level, or drift", _LEVEL),
    ("change", _STEP),
    ("95 % interval of its date", LineStyle(color=_INTERVAL_COLOUR, marker="", lw=8.0)),
]


def draw_checks_over_time(history: CheckHistory, place: str, directory: Path) -> FigureFile:
    """Draw the figure of a host's checks and write its files, with all values as CSV.

    Args:
        history: the checks.
        place: host and configuration.
        directory: folder for the files.
    """
    changed = history.changed_series[:_MOST_PANELS]
    others = [each for each in history.series if all(each is not own for own in changed)]
    panels = [*([each] for each in changed), *([others] if others else [])]
    marks = list(zip(_LETTERS, history.component_changes[-len(_LETTERS) :], strict=False))
    legend = [[(f"{time[:10]}: {text}"[:_LONGEST_TEXT], letter)] for letter, (time, text) in marks]
    times = history.times
    about = f"{place}, {format_count(len(times), 'check')} from {times[0][:10]} to {times[-1][:10]}"
    about = f"SIMULATED \N{MIDDLE DOT} {about}" if history.is_simulated else about
    texts_above = (_TITLE, about, style.WIDTH - 2 * style.MARGIN)
    header = style.figure_header_height(*texts_above)
    lines = len(legend) + bool(changed)
    top, each_height = header + style.LEGEND_LINE * lines, _PANEL_TITLE + _PANEL
    height = top + len(panels) * each_height + _BELOW
    hover: dict[str, str] = {}
    with style.figure_style_context():
        figure, sheet = style.new_figure_with_header(style.WIDTH, height, *texts_above)
        place_of_legend = (_LEFT, header + 0.04)
        if changed:
            draw = partial(draw_legend_line, sheet)
            style.draw_legend(sheet, [_LEGEND], *place_of_legend, 0.46, draw)
            place_of_legend = (_LEFT, header + 0.04 + style.LEGEND_LINE)
        write = partial(sheet.text, size=style.SMALL_POINTS, weight="bold", va="center_baseline")
        style.draw_legend(sheet, legend, *place_of_legend, 0.16, write)
        for number, series in enumerate(panels):
            bottom = height - top - (number + 1) * each_height
            width = style.WIDTH - _LEFT - style.MARGIN
            box = np.array([_LEFT, bottom, width, _PANEL])
            axes = figure.add_axes(tuple(box / ([style.WIDTH, height] * 2)))
            if number < len(changed):
                _draw_changed(axes, series[0], f"panel-{number}", hover)
            else:
                _draw_others(axes, series)
            _finish(axes, times, is_last=number == len(panels) - 1)
            for letter, (time, _) in marks:
                _mark_component_change(axes, letter, time)
        write_drawing(
            figure,
            *(hover, _NAME, _TITLE, _caption(history), directory),
            is_simulated=history.is_simulated,
        )
    write_csv(history_table(history), directory / f"{_NAME}.csv")
    svg, png, csv = (f"{_NAME}.{kind}" for kind in ("svg", "png", "csv"))
    identity = (_NAME, "", "lines", _TITLE, _caption(history), None, None)
    return FigureFile(*identity, svg=svg, png=png, csv=csv)


def _caption(history: CheckHistory) -> str:
    """Return all sentences on the history as one text."""
    return " ".join(history.sentences())


def _mark_component_change(axes: Axes, letter: str, time: str) -> None:
    """Draw the line of a component change with its letter."""
    axes.axvline(_day(time), color=style.INK, lw=0.8, dashes=(3, 2), zorder=1)
    corner = axes.get_xaxis_transform()  # dates along x, shares of the panel along y
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    write = partial(axes.text, transform=corner, size=style.SMALL_POINTS, weight="bold", bbox=box)
    write(_day(time), 0.9, letter, va="center", ha="center")


def _day(time: str) -> float:
    """Return a time in matplotlib's days."""
    return float(date2num(datetime.fromisoformat(time)))  # type: ignore[no-untyped-call]


def _percent(series: ValueSeries, logs: Sequence[float]) -> list[float]:
    """Return logarithms of values as differences from the first level, in per cent."""
    return [100.0 * float(np.expm1(each - series.segments[0].first)) for each in logs]


def _name(series: ValueSeries) -> str:
    return f"{'->'.join(series.check.parts)}, {metric_words(series.check.metric)}"


def _draw_changed(axes: Axes, series: ValueSeries, name: str, hover: dict[str, str]) -> None:
    """Draw values as dots, levels as lines, and intervals of dates as bands with hover texts."""
    times, metric = [_day(time) for time in series.times], series.check.metric
    values = _percent(series, [float(each) for each in np.log(series.values)])
    axes.plot(times, values, **_VALUES)
    levels: list[float] = []
    for number, segment in enumerate(series.segments):
        ends = _percent(series, (segment.first, segment.last))
        inside = [times[segment.begin], times[segment.end - 1]]
        axes.plot(inside, ends, **_LEVEL)
        if number:
            first, last = (times[at] for at in segment.date_interval)
            axes.axvspan(first, last, color=_INTERVAL_COLOUR, lw=0, zorder=0)
            begin = times[segment.begin]
            between = [levels[-1], ends[0]]
            axes.plot([begin, begin], between, **_STEP)
            area = LineStyle(marker="o", markersize=16, color="white", linestyle="none", zorder=5)
            identity = f"{name}-{number}"
            axes.plot([begin], [np.mean(between)], alpha=0.0, gid=identity, **area)
            shown = [
                format_quantity(metric, float(np.exp(each)))
                for each in (series.segments[number - 1].last, segment.first)
            ]
            hover[identity] = (
                f"{_name(series)}: {shown[0]} before {series.times[segment.begin][:10]}, "
                f"{shown[1]} from then on"
            )
        levels = ends
    now = format_quantity(metric, series.ends[1])
    title = f"{_name(series)}: {format_quantity(metric, series.ends[0])} at first, now {now}"
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=4)


def _draw_others(axes: Axes, series: Sequence[ValueSeries]) -> None:
    """Draw the median of all values of each check, and the band that has 90 % of them."""
    found: dict[str, list[float]] = {}
    for each in series:
        percents = _percent(each, [float(value) for value in np.log(each.values)])
        for time, percent in zip(each.times, percents, strict=True):
            found.setdefault(time, []).append(percent)
    times = sorted(found)
    days = [*map(_day, times)]
    low, middle, high = np.array([np.quantile(found[time], [0.05, 0.5, 0.95]) for time in times]).T
    axes.fill_between(days, low, high, color=style.RULE, alpha=0.5, lw=0)
    axes.plot(days, middle, color=style.GREY, lw=1.0)
    title = f"{format_count(len(series), 'further value')}: median, and the band with 90 % of them"
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=4)


def _finish(axes: Axes, times: Sequence[str], *, is_last: bool) -> None:
    """Set the axes: all panels have the same dates, and values from a common least range."""
    first, last = _day(times[0]), _day(times[-1])
    # A single check needs some room, too.
    margin = max((last - first) * 0.01, 0.5)
    axes.set_xlim(first - margin, last + margin)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -_LEAST_RANGE), max(high, _LEAST_RANGE))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %" if value else "0 %")
    axes.grid(axis="y", color=style.GRID, lw=0.6)
    axes.set_axisbelow(True)
    locator = AutoDateLocator(maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    dates = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(dates)
    axes.tick_params(axis="x", labelbottom=is_last)

"""Draw two plots of residuals: against the fitted values, and against normal quantiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.draw_and_write_figures import write_drawing
from chaosity.statistics.anova import AnovaResult
from chaosity.units import choose_scale

# Maximum number of marks, since more marks only make the file larger. The largest residuals are
# always shown.
_MOST_MARKS = 300
_WIDTH, _HEIGHT = 6.6, 2.55  # inches
# With a wider range of fitted values, the axis is logarithmic to spread small values.
_WIDE = 20.0
_WORDS = "Residuals against fitted values and against normal quantiles"


def _draw_residuals(analysis: AnovaResult, metric: str, title: str) -> Figure:
    """Return a figure with both plots side by side; `metric` ends with its unit."""
    shown_rows = np.argsort(analysis.residuals, kind="stable")
    if len(shown_rows) > _MOST_MARKS:
        shown_rows = shown_rows[
            np.linspace(0, len(shown_rows) - 1, _MOST_MARKS).round().astype(int)
        ]
    fitted, residuals = analysis.fitted[shown_rows], analysis.residuals[shown_rows]
    quantiles = analysis.normal_quantiles[shown_rows]
    logs = analysis.transform == "log"
    fitted = np.exp(fitted) if logs else fitted
    scale, deviation = choose_scale(metric, fitted), float(analysis.residuals.std())
    if logs:  # the residual of a logarithm is a ratio to the fitted value
        heights, unit, slope = 100.0 * np.expm1(residuals), "% of the fitted value", 100.0
    else:
        small = choose_scale(metric, residuals)
        heights, unit, slope = residuals / small.factor, small.symbol, 1.0 / small.factor
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    bottom, top = 0.46 / _HEIGHT, 1.0 - 0.42 / _HEIGHT
    figure.text(0.01, 0.99, title, size=style.TEXT_POINTS, weight="bold", va="top")
    left, right = (figure.add_axes((x, bottom, 0.395, top - bottom)) for x in (0.085, 0.59))
    label = f"Residual ({unit})" if unit else "Residual"
    _plot_marks(left, fitted / scale.factor, heights, "Against the fitted values")
    left.set(xlabel=f"Fitted ({scale.symbol})" if scale.symbol else "Fitted", ylabel=label)
    left.axhline(0.0, color=style.GREY, linewidth=0.8, zorder=1)
    if logs and fitted.max() > _WIDE * fitted.min():
        left.set_xscale("log")
    _plot_marks(right, quantiles, heights, "Against normal quantiles")
    right.set(xlabel="Standard deviations", ylabel=label)
    ends = np.array([quantiles.min(), quantiles.max()])
    right.plot(ends, deviation * slope * ends, color=style.GREY, linewidth=0.8, zorder=1)
    return figure


def _plot_marks(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], title: str) -> None:
    """Draw a mark for each residual."""
    axes.plot(x, y, "o", markersize=2.6, color=style.COLOURS[0], markeredgewidth=0.0, alpha=0.6)
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=4.0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=style.SMALL_POINTS)
    axes.xaxis.label.set_fontsize(style.SMALL_POINTS)
    axes.yaxis.label.set_fontsize(style.SMALL_POINTS)


def write_residual_plots(analysis: AnovaResult, directory: Path, name: str) -> list[Path]:
    """Write both plots as SVG and PNG into a folder, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    title = f"Residuals of {analysis.response} by {' and '.join(analysis.factors)}"
    with style.figure_style_context():
        figure = _draw_residuals(analysis, analysis.response, title)
        texts = (f"{_WORDS}: {title}", _WORDS)
        write_drawing(figure, {}, name, *texts, directory, is_simulated=False)
    return [directory / f"{name}.svg", directory / f"{name}.png"]

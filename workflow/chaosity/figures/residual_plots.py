"""The two looks at residuals: against the fitted values, and against normal quantiles."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from chaosity.figures import style
from chaosity.figures.svg_marks import annotate
from chaosity.records import write_atomically
from chaosity.statistics.anova import Analysis
from chaosity.units import choose_scale

# More marks weigh on the page and show nothing more; the largest residuals are always among them.
MOST_MARKS = 300
_SIZE = (6.6, 2.35)  # inches
_PNG_DOTS_PER_INCH = 200
# A range of fitted values wider than this would crowd the small ones at the axis.
_WIDE = 20.0


def draw_residuals(analysis: Analysis, metric: str, title: str = "") -> Figure:
    """Both looks side by side.

    Args:
        analysis: whose residuals.
        metric: name with the unit as suffix, of what was analysed.
        title: above both, or empty.
    """
    place = np.argsort(analysis.residuals, kind="stable")
    if len(place) > MOST_MARKS:
        place = place[np.linspace(0, len(place) - 1, MOST_MARKS).round().astype(int)]
    fitted, left = analysis.fitted[place], analysis.residuals[place]
    logs = analysis.transform == "log"
    fitted = np.exp(fitted) if logs else fitted
    scale = choose_scale(metric, fitted)
    if logs:  # a residual of a logarithm is a ratio to what was fitted
        shown, unit = 100.0 * np.expm1(left), "% of the fitted value"
    else:
        small = choose_scale(metric, left)
        shown, unit = left / small.factor, small.symbol
    with style.figure_style():
        figure = style.new_figure(_SIZE[0], _SIZE[1] + (0.2 if title else 0.0))
        bottom, top = (
            0.46 / figure.get_figheight(),
            1.0 - (0.42 if title else 0.22) / (figure.get_figheight()),
        )
        if title:
            figure.text(0.01, 0.99, title, size=style.TEXT_POINTS, weight="bold", va="top")
        axes = [figure.add_axes((x, bottom, 0.395, top - bottom)) for x in (0.085, 0.59)]
        label = f"Residual ({unit})" if unit else "Residual"
        _panel(axes[0], fitted / scale.factor, shown, "Against the fitted values")
        axes[0].set(xlabel=f"Fitted ({scale.symbol})" if scale.symbol else "Fitted", ylabel=label)
        axes[0].axhline(0.0, color=style.GREY, linewidth=0.8, zorder=1)
        if logs and fitted.max() > _WIDE * fitted.min():
            axes[0].set_xscale("log")
        quantiles = analysis.normal_quantiles[place]
        _panel(axes[1], quantiles, shown, "Against normal quantiles")
        axes[1].set(xlabel="Standard deviations", ylabel=label)
        spread = float(analysis.residuals.std()) * (100.0 if logs else 1.0 / small.factor)
        ends = np.array([quantiles.min(), quantiles.max()])
        axes[1].plot(ends, spread * ends, color=style.GREY, linewidth=0.8, zorder=1)
    return figure


def _panel(axes: Axes, x: np.ndarray, y: np.ndarray, title: str) -> None:
    axes.plot(x, y, "o", markersize=2.6, color=style.COLOURS[0], markeredgewidth=0.0, alpha=0.6)
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=4.0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=style.SMALL_POINTS)
    axes.xaxis.label.set_fontsize(style.SMALL_POINTS)
    axes.yaxis.label.set_fontsize(style.SMALL_POINTS)


def residuals_svg(analysis: Analysis, metric: str, name: str, title: str = "") -> str:
    """The drawing as SVG whose ids begin with a name, so that it can stand beside others."""
    figure = draw_residuals(analysis, metric, title)
    stream = io.BytesIO()
    with style.figure_style():
        figure.savefig(stream, format="svg", metadata={"Date": None})
    words = "Residuals against fitted values and against normal quantiles"
    return annotate(stream.getvalue(), name, f"{words}: {title}" if title else words, words, {})


def write_residuals(analysis: Analysis, directory: Path, name: str) -> list[Path]:
    """Write them as SVG and PNG into a folder, which is made when it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    title = f"Residuals of {analysis.response} by {' and '.join(analysis.factors)}"
    paths = [directory / f"{name}.svg", directory / f"{name}.png"]
    write_atomically(paths[0], residuals_svg(analysis, analysis.response, name, title))
    with style.figure_style():
        draw_residuals(analysis, analysis.response, title).savefig(
            paths[1], dpi=_PNG_DOTS_PER_INCH, metadata={"Software": None}
        )
    return paths

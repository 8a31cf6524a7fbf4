"""Draw two plots of residuals: against the fitted values, and against normal quantiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chaosity.figures.vega_lite import Drawing, Row, write_drawing
from chaosity.statistics.anova import AnovaResult
from chaosity.units import choose_scale

# Maximum number of marks, since more marks only make the file larger. The largest residuals are
# always shown.
_MOST_MARKS = 300
# With a wider range of fitted values, the axis is logarithmic to spread small values.
_WIDE = 20.0
_WORDS = "Residuals against fitted values and against normal quantiles"


def _drawing(analysis: AnovaResult, metric: str, title: str) -> Drawing:
    """Return the rows of both plots; `metric` ends with its unit."""
    shown = np.argsort(analysis.residuals, kind="stable")
    if len(shown) > _MOST_MARKS:
        shown = shown[np.linspace(0, len(shown) - 1, _MOST_MARKS).round().astype(int)]
    fitted, residuals = analysis.fitted[shown], analysis.residuals[shown]
    quantiles = analysis.normal_quantiles[shown]
    logs = analysis.transform == "log"
    fitted = np.exp(fitted) if logs else fitted
    scale, deviation = choose_scale(metric, fitted), float(analysis.residuals.std())
    if logs:  # the residual of a logarithm is a ratio to the fitted value
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
    """Write both plots as SVG and PNG into a folder, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    title = f"Residuals of {analysis.response} by {' and '.join(analysis.factors)}"
    write_drawing(_drawing(analysis, analysis.response, title), name, _WORDS, directory)
    return [directory / f"{name}.svg", directory / f"{name}.png"]

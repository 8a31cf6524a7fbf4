"""Figures that an experiment's YAML describes, drawn from the tidy table."""

from chaosity.figures.files import FigureFile, draw, read_figures, write_bars

__all__ = ["FigureFile", "draw", "read_figures", "write_bars"]

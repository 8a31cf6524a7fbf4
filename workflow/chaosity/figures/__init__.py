"""Figures that an experiment's YAML describes, drawn from the tidy table."""

from chaosity.figures.axis_values import is_size
from chaosity.figures.figure_files import FigureFile, draw, read_figures, write_bars
from chaosity.figures.text_tables import TextTable

__all__ = ["FigureFile", "TextTable", "draw", "is_size", "read_figures", "write_bars"]

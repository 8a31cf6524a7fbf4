"""Figures that an experiment's YAML describes, drawn from the measurements."""

from chaosity.figures.axis_values import is_byte_column
from chaosity.figures.figure_files import FigureFile, draw, read_figures, write_bar_chart
from chaosity.figures.text_tables import TextTable

__all__ = ["FigureFile", "TextTable", "draw", "is_byte_column", "read_figures", "write_bar_chart"]

"""Figures that an experiment's YAML describes, drawn from the tidy table."""

from chaosity.figures.files import FigureFile, draw, read_figures, write_bars
from chaosity.figures.numbers import TextTable
from chaosity.figures.places import is_size

__all__ = ["FigureFile", "TextTable", "draw", "is_size", "read_figures", "write_bars"]

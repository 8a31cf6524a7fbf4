"""Renders the report's template: one HTML file that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from chaosity.config import ROOT
from chaosity.records import write_atomically
from chaosity.report.report_builder import ReportData, build_report_data

TEMPLATES = ROOT / "templates" / "report"


def page(template: str, templates: Path = TEMPLATES, **values: Any) -> str:
    """A page as HTML; every text is escaped, only drawings are taken as they are."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def render(context: ReportData, templates: Path = TEMPLATES) -> str:
    """The report as HTML."""
    return page("report.html.j2", templates, report=context)


def render_report(tidy: pd.DataFrame, output: Path, **parts: Any) -> ReportData:
    """Write the report of one host in one configuration.

    Args:
        tidy: its tidy table.
        output: the HTML file.
        parts: as `build_report_data` takes them.

    Returns:
        What it says, for the summary on the terminal.
    """
    context = build_report_data(tidy, output=output, **parts)
    write_atomically(output, render(context))
    return context

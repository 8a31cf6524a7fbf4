"""Renders the templates of the report and of the overview as HTML files that need no network."""

from __future__ import annotations

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from chaosity.checked_yaml_files import ROOT
from chaosity.report.report_data import ReportData

TEMPLATES = ROOT / "templates" / "report"


def render_page(template: str, **values: object) -> str:
    """A template as HTML; all texts are escaped, drawings are inserted as they are."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def render_report(report: ReportData) -> str:
    """The report as HTML."""
    return render_page("report.html.j2", report=report)

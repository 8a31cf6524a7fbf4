"""One self-contained HTML file: what a machine does, how that was found, and what failed."""

from chaosity.report.context import build_context
from chaosity.report.model import Finding, ReportContext
from chaosity.report.overview import write_overview
from chaosity.report.render import render, render_report
from chaosity.report.runs import Run, summarise_records
from chaosity.report.summary import Summary, summary_of, terminal_line, worst

__all__ = [
    "Finding",
    "ReportContext",
    "Run",
    "Summary",
    "build_context",
    "render",
    "render_report",
    "summarise_records",
    "summary_of",
    "terminal_line",
    "worst",
    "write_overview",
]

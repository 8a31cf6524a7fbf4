"""The report of a host as one self-contained HTML file, and the overview of all hosts."""

from chaosity.report.host_summary import Summary, summarise_report, terminal_line, worst
from chaosity.report.html_pages import render, render_report
from chaosity.report.overview import write_overview
from chaosity.report.record_summaries import Run, summarise_records
from chaosity.report.report_builder import build_report_data
from chaosity.report.report_data import Finding, ReportData

__all__ = [
    "Finding",
    "ReportData",
    "Run",
    "Summary",
    "build_report_data",
    "render",
    "render_report",
    "summarise_records",
    "summarise_report",
    "terminal_line",
    "worst",
    "write_overview",
]

"""The report of a host as one self-contained HTML file, and the overview of all hosts."""

from chaosity.report.overview_page import write_overview
from chaosity.report.record_summaries import RecordSummary, summarise_records
from chaosity.report.report_builder import build_report_data
from chaosity.report.report_data import ReportData
from chaosity.report.report_summary import ReportSummary, summarise_report

__all__ = [
    "RecordSummary",
    "ReportData",
    "ReportSummary",
    "build_report_data",
    "summarise_records",
    "summarise_report",
    "write_overview",
]

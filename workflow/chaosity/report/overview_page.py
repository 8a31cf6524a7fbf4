"""Writes the overview: all hosts and configurations on one page, a row each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.report.equal_host_comparison import EqualHostGroup, HostResults, compare_equal_hosts
from chaosity.report.html_rendering import render_page
from chaosity.report.report_summary import FINDING
from chaosity.report.result_checks import OK, PROBLEM, SEVERITIES
from chaosity.result_folders import skipped_hosts
from chaosity.transport.skipped_hosts import SkippedHost, read_skipped_host

_SEVERITIES = (FINDING, *SEVERITIES)


@dataclass(frozen=True)
class OverviewRow:
    """A host in one configuration.

    Attributes:
        host, configuration, measured: as in the report.
        link: to the report, or None without a report.
        severity, text: the worst problem.
        others: number of further problems in the summary.
        valid, failed, missing: numbers of points.
        resources: the best values for each column of the overview, as in the summary.
        skipped: when and why the last run skipped the host, or None.
        outlier: that the host differs from equal hosts, or None.
    """

    host: str
    configuration: str
    measured: str
    link: str | None
    severity: str
    text: str
    others: int
    valid: int
    failed: int
    missing: int
    resources: tuple[tuple[Mapping[str, str], ...], ...]
    skipped: str | None
    outlier: str | None = None


@dataclass(frozen=True)
class Overview:
    """The content of the page.

    Attributes:
        columns: names of the resources.
        rows: by host and configuration.
        groups: hosts that should be equal.
        hosts: number of hosts.
        sentence: the worst problem of all hosts.
    """

    columns: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    groups: tuple[EqualHostGroup, ...]
    hosts: int
    sentence: str
    version: str = __version__

    @property
    def report_links(self) -> dict[tuple[str, str], str | None]:
        """The report of each host and configuration, None without a report."""
        return {(row.host, row.configuration): row.link for row in self.rows}


def write_overview(summaries: Iterable[Path], output: Path) -> Overview:
    """Write the overview.

    Args:
        summaries: `summary.json` of each report. Skipped hosts are listed without a summary too.
        output: the HTML file, in the folder of all hosts.

    Raises:
        UserError: a file is not a summary.
    """
    read = {path: _read_summary(path) for path in sorted(set(summaries))}
    columns = tuple(dict.fromkeys(name for each in read.values() for name in each["resources"]))
    groups = compare_equal_hosts(
        [
            HostResults(each["host"], each["configuration"], path.parent)
            for path, each in read.items()
        ]
    )
    rows = [_marked(_row(path, each, columns, output), groups) for path, each in read.items()]
    measured = {row.host for row in rows}
    rows += [
        _never_measured(skipped, columns)
        for skipped in skipped_hosts(output.parent)
        if skipped.host not in measured
    ]
    rows.sort(key=lambda row: (row.host, row.configuration))
    hosts = len({row.host for row in rows})
    overview = Overview(columns, tuple(rows), tuple(groups), hosts, _worst_sentence(rows))
    write_atomically(output, render_page("overview.html.j2", overview=overview))
    return overview


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        return {
            **summary,
            "resources": dict(summary["resources"]),
            "worst": list(summary["worst"]),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "write the report again"
        raise UserError("is not a summary of a report", str(path), remedy) from error


def _row(
    path: Path, summary: Mapping[str, Any], columns: tuple[str, ...], output: Path
) -> OverviewRow:
    html = path.with_name("report.html")
    worst = summary["worst"][0]
    skipped = read_skipped_host(path.parent.parent)
    return OverviewRow(
        host=summary["host"],
        configuration=summary["configuration"],
        measured=summary["measured"],
        link=Path(os.path.relpath(html, output.parent)).as_posix() if html.exists() else None,
        severity=worst["severity"],
        text=worst["text"],
        others=len(summary["worst"]) - 1,
        **summary["points"],
        resources=tuple(tuple(summary["resources"].get(column, ())) for column in columns),
        skipped=_skipped_text(skipped) if skipped else None,
    )


def _marked(row: OverviewRow, groups: Iterable[EqualHostGroup]) -> OverviewRow:
    """The row, with a note if the host is an outlier host."""
    for group in groups:
        if group.configuration == row.configuration and row.host in group.outlier_hosts:
            text = f"outlier host: differs from the other hosts in {row.configuration}, see above"
            return replace(row, outlier=text)
    return row


def _skipped_text(skipped: SkippedHost) -> str:
    return f"skipped on {skipped.minute}: {skipped.reason}"


def _never_measured(skipped: SkippedHost, columns: tuple[str, ...]) -> OverviewRow:
    return OverviewRow(
        host=skipped.host,
        configuration="",
        measured="never measured",
        link=None,
        severity=PROBLEM,
        text="",
        others=0,
        valid=0,
        failed=0,
        missing=0,
        resources=tuple(() for _ in columns),
        skipped=_skipped_text(skipped),
    )


def _worst_sentence(rows: Iterable[OverviewRow]) -> str:
    """The worst problem of all hosts, with the host."""
    wrong = [row for row in rows if row.skipped or row.outlier or row.severity != OK]
    if not wrong:
        return "No problems found on any host."
    worst = min(wrong, key=_rank)
    name = f"{worst.host} {worst.configuration}".strip()
    text = worst.text if _SEVERITIES.index(worst.severity) <= _rank(worst)[1] else worst.outlier
    return f"Worst: {name}, {(worst.skipped or str(text)).rstrip('.')}."


def _rank(row: OverviewRow) -> tuple[bool, int]:
    """Position of a host among the hosts with problems: skipped hosts first, then by severity."""
    own = _SEVERITIES.index(row.severity)
    return row.skipped is None, min(own, _SEVERITIES.index(PROBLEM)) if row.outlier else own

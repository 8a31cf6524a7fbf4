"""All hosts and configurations on one page, when there are several: a row each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records import write_atomically
from chaosity.report.equal_hosts import EqualHosts, HostResults, compare_equal_hosts
from chaosity.report.host_summary import FINDING
from chaosity.report.html_pages import page
from chaosity.report.result_checks import OK, PROBLEM, SEVERITIES
from chaosity.result_folders import skipped_hosts
from chaosity.store import SkippedHost, read_skipped_host

_ORDER = (FINDING, *SEVERITIES)


@dataclass(frozen=True)
class HostRow:
    """A host in one configuration.

    Attributes:
        host, configuration, measured: as the report has them.
        link: to the report, None when there is none.
        severity, text: the worst that was found.
        others: number of further things that the report says in short.
        valid, failed, missing: points.
        resources: of each column of the overview the figures, as in the summary.
        left_out: when and why the last run left the host out, else None.
        unlike: that it is not like the hosts that it should be equal to, else None.
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
    left_out: str | None
    unlike: str | None = None


@dataclass(frozen=True)
class Overview:
    """The page: names of the resources' columns, and the rows, by host and configuration.

    Hosts that should be equal stand together in `groups`, `links` has the report of each host and
    configuration.
    """

    columns: tuple[str, ...]
    rows: tuple[HostRow, ...]
    groups: tuple[EqualHosts, ...]
    hosts: int
    sentence: str
    version: str = __version__

    @property
    def links(self) -> dict[tuple[str, str], str | None]:
        """The report of each host and configuration, None where there is none."""
        return {(row.host, row.configuration): row.link for row in self.rows}


def write_overview(summaries: Iterable[Path], output: Path) -> Overview:
    """Write the overview.

    Args:
        summaries: `summary.json` of each report; hosts without one are shown when they were left
            out.
        output: the HTML file, in the folder of all hosts.

    Raises:
        UserError: a summary cannot be read.
    """
    found = {path: _read(path) for path in sorted(set(summaries))}
    columns = tuple(dict.fromkeys(name for one in found.values() for name in one["resources"]))
    alike = compare_equal_hosts([HostResults(one["host"], one["configuration"], path.parent)
                    for path, one in found.items()])  # fmt: skip
    rows = [_marked(_row(path, one, columns, output), alike) for path, one in found.items()]
    known = {row.host for row in rows}
    rows += [_never_measured(one, columns)
             for one in skipped_hosts(output.parent) if one.host not in known]  # fmt: skip
    rows.sort(key=lambda row: (row.host, row.configuration))
    overview = Overview(
        columns, tuple(rows), tuple(alike), len({row.host for row in rows}), _sentence(rows)
    )
    write_atomically(output, page("overview.html.j2", overview=overview))
    return overview


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {**found, "resources": dict(found["resources"]), "worst": list(found["worst"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("is no summary of a report", str(path), "make the report again") from error


def _row(path: Path, summary: Mapping[str, Any], columns: tuple[str, ...], output: Path) -> HostRow:
    html = path.with_name("report.html")
    worst = summary["worst"][0]
    away = read_skipped_host(path.parent.parent)
    return HostRow(
        host=summary["host"],
        configuration=summary["configuration"],
        measured=summary["measured"],
        link=Path(os.path.relpath(html, output.parent)).as_posix() if html.exists() else None,
        severity=worst["severity"],
        text=worst["text"],
        others=len(summary["worst"]) - 1,
        **summary["points"],
        resources=tuple(tuple(summary["resources"].get(column, ())) for column in columns),
        left_out=_left_out(away) if away else None,
    )


def _marked(row: HostRow, alike: Iterable[EqualHosts]) -> HostRow:
    """A row that says so when the host is not like the others."""
    for group in alike:
        if group.configuration == row.configuration and row.host in group.accused:
            return replace(row, unlike=f"not like the others in {row.configuration}, see above")
    return row


def _left_out(away: SkippedHost) -> str:
    return f"left out on {away.minute}: {away.reason}"


def _never_measured(away: SkippedHost, columns: tuple[str, ...]) -> HostRow:
    return HostRow(
        host=away.host, configuration="", measured="never measured", link=None,
        severity=PROBLEM, text="", others=0, valid=0, failed=0, missing=0,
        resources=tuple(() for _ in columns), left_out=_left_out(away),
    )  # fmt: skip


def _sentence(rows: Iterable[HostRow]) -> str:
    """What is worst, and where."""
    wrong = [(_rank(row), row) for row in rows if row.left_out or row.unlike or row.severity != OK]
    if not wrong:
        return "Nothing is wrong on any host as far as was looked."
    (_, rank), worst = min(wrong, key=lambda one: one[0])
    name = f"{worst.host} {worst.configuration}".strip()
    text = worst.text if _ORDER.index(worst.severity) <= rank else worst.unlike
    return f"Worst: {name}, {(worst.left_out or str(text)).rstrip('.')}."


def _rank(row: HostRow) -> tuple[bool, int]:
    """Where a host stands among those with something wrong, the worst first."""
    own = _ORDER.index(row.severity)
    return row.left_out is None, min(own, _ORDER.index(PROBLEM)) if row.unlike else own

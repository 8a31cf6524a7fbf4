"""All hosts and configurations on one page, when there are several: a row each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records import write_atomically
from chaosity.report.checks import OK, PROBLEM, SEVERITIES
from chaosity.report.render import page
from chaosity.report.summary import FINDING
from chaosity.store import LeftOut, left_out_hosts, read_left_out

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


@dataclass(frozen=True)
class Overview:
    """The page: names of the resources' columns, and the rows, by host and configuration."""

    columns: tuple[str, ...]
    rows: tuple[HostRow, ...]
    hosts: int
    sentence: str
    version: str = __version__


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
    rows = [_row(path, one, columns, output) for path, one in found.items()]
    known = {row.host for row in rows}
    rows += [_never_measured(one, columns)
             for one in left_out_hosts(output.parent) if one.host not in known]  # fmt: skip
    rows.sort(key=lambda row: (row.host, row.configuration))
    overview = Overview(columns, tuple(rows), len({row.host for row in rows}), _sentence(rows))
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
    away = read_left_out(path.parent.parent)
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


def _left_out(away: LeftOut) -> str:
    return f"left out on {away.minute}: {away.reason}"


def _never_measured(away: LeftOut, columns: tuple[str, ...]) -> HostRow:
    return HostRow(
        host=away.host, configuration="", measured="never measured", link=None,
        severity=PROBLEM, text="", others=0, valid=0, failed=0, missing=0,
        resources=tuple(() for _ in columns), left_out=_left_out(away),
    )  # fmt: skip


def _sentence(rows: Iterable[HostRow]) -> str:
    """What is worst, and where."""
    wrong = [row for row in rows if row.left_out or row.severity != OK]
    if not wrong:
        return "Nothing is wrong on any host as far as was looked."
    wrong.sort(key=lambda row: (row.left_out is None, _ORDER.index(row.severity)))
    worst = wrong[0]
    name = f"{worst.host} {worst.configuration}".strip()
    return f"Worst: {name}, {worst.left_out or worst.text.rstrip('.')}."

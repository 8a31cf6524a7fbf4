"""What lies below the results of other hosts and configurations than the one at hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chaosity.transport.left_out import NAME as LEFT_OUT
from chaosity.transport.left_out import left_out

TABLE = "measurements.parquet"
SUMMARY = "summary.json"


@dataclass(frozen=True)
class SkippedHost:
    """A host that the last run had to leave out.

    Attributes:
        host: its name.
        at: when, UTC.
        reason: one sentence.
    """

    host: str
    at: str
    reason: str

    @property
    def notice(self) -> str:
        """When and why, as it stands in a report."""
        return f"{self.minute}: {self.reason.rstrip('.')}"

    @property
    def minute(self) -> str:
        """When, as people write it."""
        return self.at[:16].replace("T", " ") + " UTC" if self.at else "an unknown time"


def other_configuration_tables(results: Path, host: str, configuration: str) -> list[Path]:
    """Tidy tables of a host's other configurations that were measured, by name."""
    found = sorted((results / host).glob(f"*/{TABLE}"))
    return [path for path in found if path.parent.name != configuration]


def summary_files(results: Path) -> list[Path]:
    """What the reports of all hosts and configurations say in short, by name."""
    return sorted(results.glob(f"*/*/{SUMMARY}"))


def several_configurations(results: Path, folders: Iterable[Path]) -> bool:
    """Whether there is more than one host or configuration to show.

    Args:
        results: the folder of all hosts.
        folders: ``results/<host>/<configuration>`` of those that are about to be measured.
    """
    places = {(folder.parent.name, folder.name) for folder in folders}
    places |= {(path.parent.parent.name, path.parent.name) for path in summary_files(results)}
    away = {one.host for one in skipped_hosts(results)} - {host for host, _ in places}
    return len(places) + len(away) > 1


def modification_times(paths: Iterable[Path]) -> list[int]:
    """When files were last written, in nanoseconds, for Snakemake to notice that they were."""
    return [path.stat().st_mtime_ns for path in paths]


def skipped_hosts(results: Path) -> list[SkippedHost]:
    """All hosts that the last run left out, by name."""
    found = (read_skipped_host(path.parent) for path in sorted(results.glob(f"*/{LEFT_OUT}")))
    return [one for one in found if one is not None]


def read_skipped_host(host_folder: Path) -> SkippedHost | None:
    """Why the last run left a host out; None when it did not.

    Args:
        host_folder: ``results/<host>``.
    """
    note = left_out(host_folder)
    return SkippedHost(host_folder.name, note["at"], note["reason"]) if note else None

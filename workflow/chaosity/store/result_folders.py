"""What lies below the results of other hosts and configurations than the one at hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chaosity.transport.skipped_hosts import SKIPPED_HOST_FILE, SkippedHost, read_skipped_host

TABLE = "measurements.parquet"
SUMMARY = "summary.json"


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
    found = (
        read_skipped_host(path.parent) for path in sorted(results.glob(f"*/{SKIPPED_HOST_FILE}"))
    )
    return [one for one in found if one is not None]

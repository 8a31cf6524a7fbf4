"""Find files in the results of other configurations and hosts, and the skipped hosts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chaosity.transport.skipped_hosts import SKIPPED_HOST_FILE, SkippedHost, read_skipped_host

MEASUREMENTS_FILE = "measurements.parquet"
# Cells that a budget left out, and what was predicted for them.
UNMEASURED_FILE = "unmeasured.parquet"
PREDICTIONS_FILE = "predictions.parquet"
SUMMARY_FILE = "summary.json"


def other_configuration_tables(results: Path, host: str, configuration: str) -> list[Path]:
    """Return the paths of the tidy tables of a host's other configurations, sorted by name."""
    found = sorted((results / host).glob(f"*/{MEASUREMENTS_FILE}"))
    return [path for path in found if path.parent.name != configuration]


def summary_files(results: Path) -> list[Path]:
    """Return the paths of the summaries of all hosts and configurations, sorted by name."""
    return sorted(results.glob(f"*/*/{SUMMARY_FILE}"))


def has_several_hosts_or_configurations(results: Path, folders: Iterable[Path]) -> bool:
    """Return whether there is more than one host or configuration to show.

    Args:
        results: the folder of all hosts.
        folders: ``results/<host>/<configuration>`` of the hosts of this run.
    """
    known = {(folder.parent.name, folder.name) for folder in folders}
    known |= {(path.parent.parent.name, path.parent.name) for path in summary_files(results)}
    skipped = {note.host for note in skipped_hosts(results)} - {host for host, _ in known}
    return len(known) + len(skipped) > 1


def modification_times_ns(paths: Iterable[Path]) -> list[int]:
    """Return the modification times of files in ns; a change makes Snakemake run a rule again."""
    return [path.stat().st_mtime_ns for path in paths]


def skipped_hosts(results: Path) -> list[SkippedHost]:
    """Return all hosts that the last run skipped, sorted by name."""
    notes = sorted(results.glob(f"*/{SKIPPED_HOST_FILE}"))
    return [note for path in notes if (note := read_skipped_host(path.parent))]

"""Find the results of hosts and of their configurations, and list the hosts that were skipped."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError
from chaosity.records.record_files import (
    read_regular_file,
    time_to_the_minute,
    utc_now_text,
    write_atomically,
)

MEASUREMENTS_FILE = "measurements.parquet"
# Files with the cells that a budget left out, and with the values that were predicted for these
# cells.
UNMEASURED_FILE = "unmeasured.parquet"
PREDICTIONS_FILE = "predictions.parquet"
SUMMARY_FILE = "summary.json"
SKIPPED_HOST_FILE = "left_out.json"
# Files and folders of which each folder results/HOST/CONFIGURATION contains at least one;
# discovery, planning or a run wrote it.
_PARTS_OF_RESULTS = ("topology.json", "plan.json", "points", MEASUREMENTS_FILE)
# Largest number of folders that an error names.
_MOST_NAMES = 12
# Files and folders below results/ -> their content. The pattern of a folder includes all files in
# it.
FILES_OF_ALL_HOSTS = {
    "index.html": "page of all hosts and configurations, if there are several",
    "HOST/host.json": "how commands reach the host",
    "HOST/run_config.yaml": "config of the last run, as jobs of the workflow read it",
    "HOST/.lock": "lock of the run that writes into the folder of the host",
    "HOST/left_out.json": "why the last run skipped the host",
}
FILES_OF_A_CONFIGURATION = {
    "report.html": "the report; it needs no network",
    "summary.txt": "the worst problems, which a run prints at its end",
    "summary.json": "the numbers that the page of all hosts shows of this host",
    "figures/": "each figure as SVG, PNG and CSV",
    "findings.json": "findings and suspicions, the worst first, and what was tested",
    "measurements.parquet": "the tidy table: one row for each point, replicate, load and metric",
    "history.parquet": "a tidy table of the values from before a component changed",
    "unmeasured.parquet": "a tidy table of the cells that a budget left out",
    "predictions.parquet": "predicted values of the cells that a budget left out, with bounds",
    "exports/": "files for other programs; notes.txt says which files are missing, and why",
    "topology.xml": "the host as hwloc describes it",
    "topology.json": "the topology that plans and findings use",
    "topology.svg": "the drawing of the topology by lstopo",
    "machine.json": "the description of a simulated host",
    "components/": "a file for each component; if it changes, the component is measured again",
    "plan.json": "all points, their order and their planned time",
    "points/": "EXPERIMENT/POINT.json: what the runner is asked to measure",
    "rounds/": "with a budget: what each round measures, and why",
    "weights.json": "page weights with which placements were planned",
    "EXPERIMENT/POINT/repN.json": "the raw record of replicate N",
    "EXPERIMENT/POINT/repN.log": "what the measurement wrote to standard error",
    "EXPERIMENT/POINT/attempts/": "all records, failed ones too, with their SHA256SUMS",
    "model.json": "the fitted model, which `chaosity advise` keeps",
    "checks.csv": "values of the nightly checks, one line for each value",
    "checks/": "raw records of the nightly checks",
    "check_components.jsonl": "components as the nightly checks saw them",
    ".tidy/": "copies of what was read from records; this folder can be deleted",
    "*.log": "messages of a step of the workflow",
}


def path_argument(path: Path) -> str:
    """Return a path as an argument of a command line; ./ marks one that begins with a hyphen.

    Without this mark, the command would take the path for an option.
    """
    return f"./{path}" if str(path).startswith("-") else str(path)


def explain_command_line(folder: Path, *arguments: str) -> str:
    """Return the command line, quoted for a shell, that explains the values of a point.

    `folder` is results/HOST/CONFIGURATION. `arguments` are the name of the point, and options.
    """
    return shlex.join(["chaosity", "explain", path_argument(folder), *arguments])


def find_results_folder(folder: Path) -> Path:
    """Return the only folder ``results/HOST/CONFIGURATION`` at or below the given folder.

    Args:
        folder: the folder of a configuration, of a host or of all hosts.

    Raises:
        UserError: the folder has no results, or has results of several configurations.
    """
    for pattern in ("", "*/", "*/*/"):
        parts = (path for part in _PARTS_OF_RESULTS for path in folder.glob(pattern + part))
        if found := sorted({path.parent for path in parts}):
            break
    if len(found) == 1:
        return found[0]
    if not found:
        remedy = "name a folder results/HOST/CONFIGURATION, which make run writes"
        raise UserError("the folder has no results of a host", str(folder), remedy)
    names = [*map(str, found[:_MOST_NAMES])]
    more = len(found) - len(names)
    listed = f"{', '.join(names)} and {more} more" if more else " or ".join(names)
    what = f"the folder has the results of {len(found)} configurations"
    raise UserError(what, str(folder), f"name one of them: {listed}")


def existing_tidy_table(folder: Path) -> Path:
    """Return the path of the tidy table in a folder ``results/HOST/CONFIGURATION``.

    Raises:
        UserError: the folder has no tidy table, since nothing was measured.
    """
    table = folder / MEASUREMENTS_FILE
    if not table.exists():
        remedy = "name a folder results/HOST/CONFIGURATION of a run"
        raise UserError(f"{MEASUREMENTS_FILE} is missing", str(folder), remedy)
    return table


def tidy_tables_of_other_configurations(results: Path, host: str, configuration: str) -> list[Path]:
    """Return the tidy tables of a host's other configurations, sorted by name."""
    found = sorted((results / host).glob(f"*/{MEASUREMENTS_FILE}"))
    return [path for path in found if path.parent.name != configuration]


def summary_files_of_all_hosts(results: Path) -> list[Path]:
    """Return the paths of the summaries of all hosts and configurations, sorted by name."""
    return sorted(results.glob(f"*/*/{SUMMARY_FILE}"))


def has_several_hosts_or_configurations(results: Path, folders: Iterable[Path]) -> bool:
    """Return whether the page of all hosts shows more than one host or configuration.

    Args:
        results: the folder of all hosts.
        folders: ``results/<host>/<configuration>`` of the hosts of this run.
    """
    known = {(folder.parent.name, folder.name) for folder in folders}
    known |= {
        (path.parent.parent.name, path.parent.name) for path in summary_files_of_all_hosts(results)
    }
    skipped = {note.host for note in skipped_hosts(results)} - {host for host, _ in known}
    return len(known) + len(skipped) > 1


def modification_times_ns(paths: Iterable[Path]) -> list[int]:
    """Return the modification times of files in ns; Snakemake runs a rule again if one changes."""
    return [path.stat().st_mtime_ns for path in paths]


def skipped_hosts(results: Path) -> list[SkippedHost]:
    """Return all hosts that the last run skipped, sorted by name."""
    notes = sorted(results.glob(f"*/{SKIPPED_HOST_FILE}"))
    return [note for path in notes if (note := read_skipped_host(path.parent))]


@dataclass(frozen=True)
class SkippedHost:
    """A host that the last run skipped. The time is in UTC (ISO 8601), or empty if unknown."""

    host: str
    skipped_at: str
    reason: str

    @property
    def skip_time_and_reason(self) -> str:
        """Return a text for a report: when and why the host was skipped."""
        return f"{self.time_to_the_minute}: {self.reason.rstrip('.')}"

    @property
    def time_to_the_minute(self) -> str:
        """Return a time in UTC, to the minute: "2026-11-21 03:30 UTC"."""
        return time_to_the_minute(self.skipped_at)


def write_skipped_host_note(folder: Path, host: str, reason: str) -> None:
    """Write into ``results/<host>`` that a host is skipped; `reason` is a clause."""
    note = {"host": host, "at": utc_now_text(), "reason": reason}
    write_atomically(folder / SKIPPED_HOST_FILE, json.dumps(note, indent=1) + "\n")


def read_skipped_host(folder: Path) -> SkippedHost | None:
    """Return the note of a skipped host in ``results/<host>``; None if the host is not skipped."""
    try:
        note = json.loads(read_regular_file(folder / SKIPPED_HOST_FILE))
        return SkippedHost(folder.name, str(note.get("at", "")), str(note["reason"]))
    except FileNotFoundError:
        return None
    except (OSError, *ERRORS_OF_MALFORMED_DOCUMENTS):
        reason = f"{SKIPPED_HOST_FILE} cannot be read, so the reason is not known"
        return SkippedHost(folder.name, "", reason)


def remove_skipped_host_note(folder: Path) -> None:
    """Remove the note about a skipped host, because the host answers again."""
    (folder / SKIPPED_HOST_FILE).unlink(missing_ok=True)

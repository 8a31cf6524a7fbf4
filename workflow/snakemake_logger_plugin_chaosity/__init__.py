"""Progress messages of the workflow: one line for each measurement, with the time left.

Snakemake finds this package by its name and uses it for ``logger: chaosity`` in a profile
(https://snakemake.readthedocs.io, logger plugins). Errors, warnings and dry runs look as usual.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake.logging import DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from chaosity.campaign.campaign import Campaign
from chaosity.errors import UserError, check_free_space
from chaosity.records.record_files import load_record
from chaosity.records.record_format import VALID
from chaosity.result_folders import read_skipped_host
from chaosity.units import format_count, format_duration

# Events of Snakemake in place of which progress messages are printed.
REPLACED = {
    LogEvent.JOB_STARTED,
    LogEvent.SHELLCMD,
    LogEvent.RESOURCES_INFO,
    LogEvent.WORKFLOW_STARTED,
}
NOTHING_TO_BE_DONE = "Nothing to be done"  # how Snakemake's message begins
# The rule that measures. A workflow that uses this as a module may put a prefix before its name.
MEASURE = "measure"
# A line names at most this many hosts.
MOST_NAMES = 4
# Rules that only name their inputs or group measurements.
WITHOUT_STEPS = ("all", "measurements", "open_slurm_batch")


def planned_seconds(wildcards: Mapping[str, str]) -> float:
    """Return the planned seconds of the measurement that Snakemake's wildcards name."""
    if Campaign.current is None:
        return 0.0
    return Campaign.current.point_of(SimpleNamespace(**wildcards))["estimated_seconds"]


def measurements_and_other_steps(stats: Mapping[str, int]) -> tuple[int, int]:
    """Return the numbers of measurements and other jobs; `stats` is rule -> number of jobs."""
    counts = {rule: count for rule, count in stats.items() if rule != "total"}
    measurements = sum(count for rule, count in counts.items() if rule.endswith(MEASURE))
    targets = sum(count for rule, count in counts.items() if rule.endswith(WITHOUT_STEPS))
    return measurements, sum(counts.values()) - measurements - targets


def last_message(logs: Iterable[Path]) -> str | None:
    """Return the last line of this project in the logs of a failed job; None without one."""
    found = None
    for log in logs:
        if log.is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            found = next((x for x in reversed(lines) if x.startswith("chaosity: ")), found)
    return f"    {found}" if found else None


class LogHandler(LogHandlerBase):
    """Prints progress to standard error, one line for each measurement."""

    # This handler replaces Snakemake's own messages on the terminal, selects and formats the events
    # itself, and draws no graph of rules. Snakemake keeps its own full log below .snakemake/log.
    writes_to_stream = has_filter = has_formatter = True
    writes_to_file = needs_rulegraph = False

    def __post_init__(self) -> None:
        settings = self.common_settings
        self.usual_format = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        self.usual_filter = DefaultFilter(
            settings.quiet,
            settings.debug_dag,
            settings.verbose,
            settings.dryrun,
            settings.printshellcmds,
        )
        self.total = self.started = self.ended = 0
        # Ids of running checkpoints; whether a checkpoint has ended, which can add measurements.
        self.checkpoints: set[int] = set()
        self.total_may_grow = False
        # Measurements that came back from Slurm, and how many of them were reported so far.
        self.finished = self.finished_reported = 0
        self.planned: list[float] = []
        self.record_paths: dict[int, Path] = {}
        self.skipped_hosts: set[str] = set()
        self.is_full_reported = False
        self.began = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event of Snakemake."""
        event = getattr(record, "event", None)
        # Snakemake adds attributes to the record, which differ between events.
        details: Any = record
        if self.common_settings.dryrun and self.prints_summary_only:
            if event == LogEvent.RUN_INFO:
                self.report_plan(details.stats)
            elif record.getMessage().startswith(NOTHING_TO_BE_DONE):
                self.print_line(f"{self.hosts}: {NOTHING_TO_BE_DONE}")
            elif record.levelno >= logging.WARNING:
                self.print_line(self.usual_format.format(record))
        elif self.common_settings.dryrun:
            if self.usual_filter.filter(record):
                self.print_line(self.usual_format.format(record))
        elif event == LogEvent.RUN_INFO:
            self.total, others = measurements_and_other_steps(details.stats)
            self.print_line(
                f"{self.hosts}: {self.total} measurements to take, {others} other steps"
            )
        elif event == LogEvent.GROUP_INFO:
            self.report_batch_queued(details)
        elif event == LogEvent.GROUP_ERROR:
            self.report_batch_ended_early(details)
        elif event == LogEvent.JOB_INFO:
            self.report_job_start(details)
        elif event == LogEvent.JOB_FINISHED:
            self.total_may_grow |= details.job_id in self.checkpoints
            self.report_failure(details.job_id)
        elif event == LogEvent.PROGRESS:
            self.report_finished_slurm_measurements()
        elif event == LogEvent.JOB_ERROR and details.indent:
            return  # a measurement of a batch, whose error was reported
        elif event in REPLACED or self.is_failure_of_host_or_disk(record):
            return
        elif record.levelno >= logging.WARNING or event in (LogEvent.JOB_ERROR, LogEvent.ERROR):
            self.print_line(self.usual_format.format(record))
        if event == LogEvent.JOB_ERROR:
            self.print_line(last_message(map(Path, details.log or ())))

    @property
    def prints_summary_only(self) -> bool:
        """Return whether a dry run prints a line for each host, and no jobs (with --quiet)."""
        return set(self.common_settings.quiet or ()) == {Quietness.RULES, Quietness.PROGRESS}

    @property
    def hosts(self) -> str:
        """Return the names of the hosts of this run or, for many hosts, their number."""
        names = Campaign.current.hosts if Campaign.current else []
        if len(names) > MOST_NAMES:
            return format_count(len(names), "host")
        return ", ".join(names) or "workflow"

    def report_plan(self, stats: Mapping[str, int]) -> None:
        """Report how many measurements and other steps a run would take, and for how long.

        Hosts are measured side by side, so the host with the longest time counts.
        """
        total, others = measurements_and_other_steps(stats)
        seconds: dict[str, float] = defaultdict(float)
        for job in Campaign.current.needed_jobs() if Campaign.current else ():
            if job.rule.name.endswith(MEASURE):
                seconds[job.wildcards_dict["host"]] += planned_seconds(job.wildcards_dict)
        longest = format_duration(max(seconds.values(), default=0.0))
        counts = f"{format_count(total, 'measurement')}, about {longest}"
        counts += " on the host that takes longest" * (len(seconds) > 1)
        self.print_line(f"{self.hosts}: {counts}; {format_count(others, 'other step')}")

    def report_job_start(self, details: Any) -> None:
        """Report the start of a job: its number, the time left, and what it measures."""
        if details.rule_name.endswith(WITHOUT_STEPS):
            return
        if not details.rule_name.endswith(MEASURE):
            self.print_line(details.rule_msg or details.rule_name)
            if details.is_checkpoint:
                self.checkpoints.add(details.jobid)
            return
        if self.total_may_grow:
            self.count_further_measurements()
        self.record_paths[details.jobid] = Path(details.output[0])
        if details.indent:  # part of a batch: it goes into the queue
            return
        self.started += 1
        if self.started == 1:
            self.began = time.monotonic()
        wildcards = details.wildcards
        self.planned.append(planned_seconds(wildcards))
        name = f"{wildcards['experiment']} {wildcards['point']}"
        number = f"{self.started:{len(str(self.total))}}/{self.total}"
        left = format_duration(self.seconds_left())
        line = f"{number} about {left} left  {wildcards['host']} {name} #{wildcards['replicate']}"
        self.print_line(line)

    def count_further_measurements(self) -> None:
        """Count the measurements that a checkpoint added: a mode of the firmware, or a round."""
        self.total_may_grow = False
        jobs = Campaign.current.needed_jobs() if Campaign.current else ()
        total = self.ended + sum(job.rule.name.endswith(MEASURE) for job in jobs)
        if total > self.total:
            further = format_count(total - self.total, "further measurement")
            self.print_line(f"{self.hosts}: {further} to take")
            self.total = total

    def report_batch_queued(self, details: Any) -> None:
        """Report that some measurements of a host go into Slurm's queue as one job."""
        if self.total_may_grow:
            self.count_further_measurements()
        measurements = [job for job in details.jobs if job.rule.name.endswith(MEASURE)]
        wildcards = [job.wildcards_dict for job in measurements]
        host, count = wildcards[0]["host"], len(wildcards)
        length = format_duration(sum(map(planned_seconds, wildcards)))
        self.print_line(
            f"{count} of {self.total} go to Slurm as one job of about {length} on {host}"
        )

    def report_batch_ended_early(self, details: Any) -> None:
        """Report that a Slurm job ended before all of its measurements were done."""
        logs = ", ".join(str(log) for log in details.aux_logs) or "none"
        number = getattr(details, "external_jobid", None) or "that was not accepted"
        count = sum(job["rule_name"].endswith(MEASURE) for job in details.job_error_info)
        self.print_line(
            f"    Slurm job {number} did not do all of its {count} measurements; its log: {logs}"
        )

    def report_finished_slurm_measurements(self) -> None:
        """Report how many measurements came back from Slurm, once after each job."""
        if self.finished > self.finished_reported:
            self.finished_reported = self.finished
            self.print_line(f"{self.finished} of {self.total} measured")

    def report_failure(self, job: int) -> None:
        """Report a failed measurement and the reason as soon as it has ended."""
        path = self.record_paths.pop(job, None)
        if path is None:
            return
        self.ended += 1
        self.finished += int(self.started == 0)  # with Slurm, no measurement starts here
        try:
            verdict = load_record(path)["verdict"]
        except ValueError as error:
            self.print_line(f"    failed: {error}")
            return
        if verdict["status"] != VALID:
            self.print_line(f"    failed: {path.parent.name}: {verdict['reason']}")

    def is_failure_of_host_or_disk(self, record: logging.LogRecord) -> bool:
        """Return whether a job failed for a reason that others share; report each reason once."""
        if getattr(record, "event", None) != LogEvent.JOB_ERROR:
            return False
        return self.report_failure_of_skipped_host(record) or self.report_full_file_system()

    def report_failure_of_skipped_host(self, record: logging.LogRecord) -> bool:
        """Return whether a measurement failed because its host was lost; report each host once."""
        path = self.record_paths.get(getattr(record, "jobid", -1))
        if path is None:
            return False
        folder = path.parents[3]  # <results>/<host>/<configuration>/<experiment>/<point>/rep1.json
        note = read_skipped_host(folder)
        if note and folder.name not in self.skipped_hosts:
            self.skipped_hosts.add(folder.name)
            self.print_line(f"    host {folder.name} is skipped: {note.reason}")
        return note is not None

    def report_full_file_system(self) -> bool:
        """Return whether a job failed since the results have no space; report this once."""
        try:
            check_free_space(Campaign.current.results if Campaign.current else Path())
        except UserError as error:
            if not self.is_full_reported:
                self.print_line(f"    {error} Finished measurements are kept.")
            self.is_full_reported = True
        return self.is_full_reported

    def seconds_left(self) -> float:
        """Time for the remaining jobs: by the plan, corrected by the speed of the finished jobs."""
        done = self.started - 1
        left = (self.total - done) * sum(self.planned) / len(self.planned)
        planned = sum(self.planned[:done])
        spent = time.monotonic() - self.began
        return left * (spent / planned) if done and planned else left

    def print_line(self, text: str | None) -> None:
        """Print one message."""
        if text:
            print(text, file=sys.stderr, flush=True)

"""What a person sees while the workflow runs: one line a measurement, with how long is left.

Snakemake finds this package by its name and uses it when the profile says ``logger: chaosity``
(https://snakemake.readthedocs.io, logger plugins). Errors and warnings are passed on unchanged, and
a dry run looks as Snakemake always prints it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from snakemake.logging import DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from chaosity import records
from chaosity.campaign.campaign_plans import Campaign
from chaosity.transport.skipped_hosts import read_skipped_host
from chaosity.units import format_duration

# Events that the line of progress replaces.
REPLACED = {
    LogEvent.JOB_STARTED,
    LogEvent.SHELLCMD,
    LogEvent.RESOURCES_INFO,
    LogEvent.WORKFLOW_STARTED,
}
MEASURE = "measure"


def expected_seconds(wildcards: Mapping[str, str]) -> float:
    """How long the plan says that a measurement takes."""
    if Campaign.current is None:
        return 0.0
    names = (wildcards[name] for name in ("host", "experiment", "point"))
    return Campaign.current.point(*names)["estimated_seconds"]


class LogHandler(LogHandlerBase):
    """Prints progress to standard error, a line a measurement."""

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
        self.total = self.begun = 0
        # Measurements that went to Slurm in batches and came back, and those told of so far.
        self.back = self.back_told = 0
        self.expected: list[float] = []
        self.records: dict[int, Path] = {}
        self.lost: set[str] = set()
        self.began = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event of Snakemake's."""
        event = getattr(record, "event", None)
        if self.common_settings.dryrun:
            if self.usual_filter.filter(record):
                self.say(self.usual_format.format(record))
        elif event == LogEvent.RUN_INFO:
            self.total = record.stats.get(MEASURE, 0)
            others = sum(n for name, n in record.stats.items() if name not in (MEASURE, "total"))
            self.say(f"{self.total} measurements to take, {others} other steps")
        elif event == LogEvent.GROUP_INFO:
            self.batch(record)
        elif event == LogEvent.GROUP_ERROR:
            self.batch_error(record)
        elif event == LogEvent.JOB_INFO:
            self.job(record)
        elif event == LogEvent.JOB_FINISHED:
            self.failure(record.job_id)
        elif event == LogEvent.PROGRESS:
            self.batches_back()
        elif event == LogEvent.JOB_ERROR and record.indent:
            return  # one of a batch, of which enough was said
        elif event in REPLACED or self.is_of_lost_host(record):
            return
        elif record.levelno >= logging.WARNING or event in (LogEvent.JOB_ERROR, LogEvent.ERROR):
            self.say(self.usual_format.format(record))

    def job(self, record: logging.LogRecord) -> None:
        """A job begins: what it is, which it is of how many, and how long the rest takes."""
        if record.rule_name != MEASURE:
            self.say(record.rule_msg or record.rule_name)
            return
        self.records[record.jobid] = Path(record.output[0])
        if record.indent:  # one of a batch; it has not begun, it goes into the queue
            return
        self.begun += 1
        if self.begun == 1:
            self.began = time.monotonic()
        wildcards = record.wildcards
        self.expected.append(expected_seconds(wildcards))
        name = f"{wildcards['experiment']} {wildcards['point']}"
        place = f"{self.begun:{len(str(self.total))}}/{self.total}"
        left = format_duration(self.seconds_left())
        self.say(f"{place} about {left} left  {wildcards['host']} {name} #{wildcards['replicate']}")

    def batch(self, record: logging.LogRecord) -> None:
        """Some measurements of a host go into Slurm's queue together."""
        wildcards = [job.wildcards_dict for job in record.jobs]
        host, number = wildcards[0]["host"], len(wildcards)
        length = format_duration(sum(map(expected_seconds, wildcards)))
        self.say(f"{number} of {self.total} go to Slurm as one job of about {length} on {host}")

    def batch_error(self, record: logging.LogRecord) -> None:
        """A Slurm job ended without having done all of its measurements."""
        logs = ", ".join(str(log) for log in record.aux_logs) or "none"
        number = getattr(record, "external_jobid", None) or "that was not accepted"
        self.say(
            f"    Slurm job {number} did not do all of its {len(record.job_error_info)}"
            f" measurements; its log: {logs}"
        )

    def batches_back(self) -> None:
        """Say how many measurements are back from Slurm, once after each job."""
        if self.back > self.back_told:
            self.back_told = self.back
            self.say(f"{self.back} of {self.total} measured")

    def failure(self, jobid: int) -> None:
        """Say at once when the measurement that has just ended failed, and why."""
        path = self.records.pop(jobid, None)
        if path is None:
            return
        self.back += int(self.begun == 0)  # through Slurm, none begins here
        try:
            verdict = records.load_record(path)["verdict"]
        except ValueError as error:
            self.say(f"    failed: {error}")
            return
        if verdict["status"] != records.VALID:
            self.say(f"    failed: {path.parent.name}: {verdict['reason']}")

    def is_of_lost_host(self, record: logging.LogRecord) -> bool:
        """Whether a measurement failed because its host is lost; that is said once a host."""
        path = self.records.get(getattr(record, "jobid", None))
        if path is None or getattr(record, "event", None) != LogEvent.JOB_ERROR:
            return False
        folder = path.parents[3]  # <results>/<host>/<configuration>/<experiment>/<point>/rep1.json
        note = read_skipped_host(folder)
        if note and folder.name not in self.lost:
            self.lost.add(folder.name)
            self.say(f"    host {folder.name} is left out: {note.reason}")
        return note is not None

    def seconds_left(self) -> float:
        """Time for the jobs to come: as the plan says, corrected by how the past ones went."""
        done = self.begun - 1
        mean_expected = sum(self.expected) / len(self.expected)
        left = (self.total - done) * mean_expected
        planned = sum(self.expected[:done])
        spent = time.monotonic() - self.began
        return left * (spent / planned) if done and planned else left

    def say(self, text: str | None) -> None:
        """Print one message."""
        if text:
            print(text, file=sys.stderr, flush=True)

    @property
    def writes_to_stream(self) -> bool:
        """It replaces Snakemake's own messages on the terminal."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Snakemake keeps its own full log below .snakemake/log."""
        return False

    @property
    def has_filter(self) -> bool:
        """It chooses by itself what to show."""
        return True

    @property
    def has_formatter(self) -> bool:
        """It formats by itself."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """It draws nothing."""
        return False

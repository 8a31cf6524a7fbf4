"""Run a load as a process: start it without a shell, read its output, stop it by a signal."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import MeasurementError
from chaosity.records.record_format import (
    Load,
    LoadRecord,
    ObservedPlacement,
    ProgramFacts,
    RequiredProgram,
    ThreadPlacement,
)
from chaosity.runner import observed_state
from chaosity.runner.event_counters import (
    LoadCounters,
    clock_counter_requests,
    clock_of_load,
    read_scaling_frequency,
)
from chaosity.runner.guardian_process import Guardian, kill_program
from chaosity.runner.metric_values import Samples, samples_from_json_lines
from chaosity.runner.record_checks import least_bytes_for_check_of_pages
from chaosity.runner.tool_output import ExtractionError, parse_json_lines

# Interval in which the threads of a load without a barrier are observed; an observation costs
# microseconds.
THREADS_INTERVAL_SECONDS = 0.1
# Interval in which the clock of the processors is read; a reading takes less than a millisecond.
CLOCK_INTERVAL_SECONDS = 0.1
# Running time at which the nodes of the pages of a load without a barrier are first read. Each next
# reading comes at twice the running time, because the kernel walks all page tables for a reading.
# So the last reading is in the second half of any run. While a program has too few pages for the
# check of pages, a reading costs little, so the next reading comes after
# `THREADS_INTERVAL_SECONDS`.
FIRST_READING_OF_PAGES_SECONDS = 0.25
# Seconds after which a load that ignores the stop signal is killed.
GRACE_SECONDS = 20.0
# Longest time that the runner waits, after a load, for a tool to print its version. The runner asks
# for the version before the load.
VERSION_SECONDS = 10.0
# Largest output of a tool in characters; a tool that prints more has a fault and is killed.
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
# Prefixes of environment variables that a tool gets only if its benchmark file sets them. A site
# may set these variables for all its users. Variables of OpenMP runtimes (the standard, GCC, LLVM
# and Intel) bind threads and limit their number. Variables of the loader and of malloc put other
# code or other pages into a tool. LD_LIBRARY_PATH stays, since tools of environment modules need
# this variable.
SITE_VARIABLES = (
    *("OMP_", "GOMP_", "LIBOMP_", "KMP_"),
    *("LD_PRELOAD", "LD_AUDIT", "LD_PROFILE", "LD_DEBUG", "LD_BIND_NOW"),
    *("GLIBC_TUNABLES", "MALLOC_"),
)


class LoadProcess:
    """A load of a point while it runs, in its own working `folder`, which must exist.

    The guardian kills the load if this process is killed.
    """

    def __init__(self, spec: Load, folder: Path, guardian: Guardian) -> None:
        self.spec, self.folder, self.name = spec, folder, spec["name"]
        self.guardian = guardian
        # Says whether the load prepares its memory first and then waits at a barrier for the start.
        self.has_barrier = spec["start"] == "barrier"
        # Says whether the load reports no progress, so that its value refers to its complete run.
        self.reports_no_progress = not spec["progress"]
        # Says whether the runner stops the load; other loads end by themselves.
        self.is_ended_by_runner = spec["stop"]["by"] == "runner"
        # Says whether pages move while the load runs, so that the runner reads the nodes of the
        # pages again before the load ends.
        self.pages_move_while_running = bool(spec["placement"].get("settles"))
        self.lines: list[str] = []
        self.size = 0
        self.ready = threading.Event()
        # Says whether chaosity-place reports that the pages of the running load no longer move.
        words = spec["command"]
        self.reports_settled_pages = (
            self.has_barrier
            and "--settle" in words
            and (self.pages_move_while_running or "--search" in words)
        )
        # Samples that began before this time, in monotonic seconds, do not count.
        self.counts_from = math.inf if self.reports_settled_pages else 0.0
        self.emulator: str | None = None
        self.samples: Samples = []
        self.threads: list[ThreadPlacement] = []
        self.memory_by_node: dict[str, int] | None = None
        self.memory_at_first: dict[str, int] | None = None
        self.least_memory = least_bytes_for_check_of_pages(spec)
        self._next_threads, self._next_pages = (
            THREADS_INTERVAL_SECONDS,
            FIRST_READING_OF_PAGES_SECONDS,
        )
        self.began = self.ended = 0.0
        self.signalled: str | None = None
        self.returncode: int | None = None
        self.processor_seconds = 0.0
        self.cpus = parse_cpu_list(spec["placement"]["cpus"])
        self.clock_counters = clock_counter_requests()
        self.frequencies: list[float] = []
        self._next_clock = 0.0
        self.counters = LoadCounters({}, ())
        self.errors = ""

    @property
    def needs_no_wait_for_progress(self) -> bool:
        """Return whether the load has reported a sample, or never prints samples while it runs."""
        progress = self.spec["progress"]
        return bool(self.samples) or progress is None or "event" not in progress

    def start_process(self, lock: int) -> None:
        """Write the load's files and start its process, which inherits the host's lock.

        Raises:
            MeasurementError: the program is not installed or cannot be run.
        """
        for name, text in self.spec["files"].items():
            (self.folder / name).write_text(text)
        program, need = self.spec["command"][0], self.spec["needs"]
        if shutil.which(program) is None:
            raise MeasurementError(
                f"{program} is not installed; run ansible-playbook provision.yml"
            )
        # If the command begins with numactl, the program can still be missing.
        if shutil.which(need["program"]) is None:
            raise MeasurementError(f"{need['program']} is not installed; {need['install']}")
        self.stderr = (self.folder / ".stderr").open("w+b")
        self.version = _start_version_query(need)
        wanted = {**self.spec.get("counters", {}), **self.clock_counters}
        self.counters = LoadCounters(wanted, self.cpus)
        if not self.has_barrier:
            self.counters.start_counting()
        own = {k: value for k, value in os.environ.items() if not k.startswith(SITE_VARIABLES)}
        try:
            self.process = subprocess.Popen(
                self.spec["command"],
                cwd=self.folder,
                env={**own, "LC_ALL": "C", **self.spec["environment"]},
                stdin=subprocess.PIPE if self.has_barrier else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                pass_fds=(lock,),
                # In a new session, a stop signal reaches all processes that the tool starts.
                start_new_session=True,
            )
        except OSError as error:
            self.counters.close_counters()
            self.stderr.close()
            _lines_of_version_query(self.version)
            raise MeasurementError(f"{program} cannot be run: {error}") from error
        self.guardian.kill_too_if_this_process_is_killed(self.process.pid)
        self.began = time.monotonic()
        self.reader = threading.Thread(target=self._read_output, daemon=True)
        self.reader.start()

    def _read_output(self) -> None:
        """Collect standard output until the tool closes it; a thread runs this method."""
        assert self.process.stdout is not None
        progress = self.spec["progress"] or {}
        # A limit on each read also stops a tool that never ends its line.
        for raw in iter(partial(self.process.stdout.readline, OUTPUT_LIMIT_BYTES + 1), b""):
            line = raw.decode(errors="replace")
            self.size += len(raw)
            if self.size > OUTPUT_LIMIT_BYTES:
                self.send_signal("KILL")
                break
            if self.reports_settled_pages and '"settled"' in line:
                self.counts_from = time.monotonic()
                self.ready.set()
                continue
            samples: Samples = []
            # The check of the complete output reports bad lines later.
            with contextlib.suppress(ExtractionError):
                if progress.get("event") and f'"{progress["event"]}"' in line:
                    samples = samples_from_json_lines(progress, line)
            if samples and samples[0][0] < self.counts_from:
                continue
            self.lines.append(line)
            self.samples += samples
            if '"ready"' in line and self.reports_settled_pages:
                self._open_barrier()
            elif '"ready"' in line:
                self.ready.set()

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for the ready line, after which the load waits at its barrier.

        A load whose pages first move to their nodes passes its barrier at once, and is ready when
        its pages no longer move.

        Raises:
            MeasurementError: the load ended, or was not ready in time; the text has the load's last
                message.
        """
        limit = time.monotonic() + seconds
        wanted = "its pages had settled" if self.reports_settled_pages else "it was ready"
        while not self.ready.wait(0.002):
            if not self.is_running():
                self.reader.join(1)
                if self.ready.is_set():
                    return
                raise MeasurementError(f"the load ended before {wanted}: {self._last_message()}")
            if time.monotonic() > limit:
                raise MeasurementError(f"the load was not ready after {seconds:g} s")
        self._observe_placement()

    def release_from_barrier(self) -> None:
        """Start counting events, and open the barrier unless the load has already passed it.

        Raises:
            MeasurementError: the load has ended.
        """
        self.counters.start_counting()
        if not self.reports_settled_pages and not self._open_barrier():
            raise MeasurementError(f"the load ended at its barrier: {self._last_message()}")

    def _open_barrier(self) -> bool:
        """Write the line that opens the barrier; return whether the load could read this line."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()
            return True
        return False

    def _observe_placement(self) -> None:
        """Read from the kernel on which units the threads run and on which nodes the pages are."""
        self._observe_threads()
        seen = observed_state.read_process_memory(
            self.process.pid,
            self._memory_addresses(),
            self.spec["placement"].get("launcher", False),
        )
        # A program that is ending has already freed pages, so the remaining pages do not show its
        # placement.
        earlier = self.memory_by_node
        if seen is not None and _total_bytes(seen) >= min(_total_bytes(earlier), self.least_memory):
            self.memory_by_node = seen
        self.memory_at_first = self.memory_at_first or self.memory_by_node

    def _memory_addresses(self) -> observed_state.MappingAddresses:
        """Return the measured memory's addresses in the ready line; None if the line has none."""
        key = self.spec["placement"].get("mapping")
        if key is None:
            return None
        try:
            lines = parse_json_lines("".join(self.lines))
        except ExtractionError:
            return None  # the check of the complete output reports bad lines later
        found: list[observed_state.MappingAddresses] = [x[key] for x in lines if key in x]
        return found[0] if found else None

    def _observe_threads(self) -> None:
        """Observe the load's threads, and keep the observation that shows their placement best."""
        seen = observed_state.read_process_threads(self.process.pid)
        self.emulator = self.emulator or observed_state.read_emulator(self.process.pid)
        self.threads = observed_state.better_observation_of_threads(self.threads, seen)

    def observe_placement_when_due(self) -> None:
        """Observe the placement of a load without a barrier, if the next observation is due."""
        if self.has_barrier:
            return
        running = time.monotonic() - self.began
        if running >= self._next_pages:
            self._observe_placement()
            enough = _total_bytes(self.memory_by_node) >= self.least_memory
            self._next_pages = 2 * running if enough else running + THREADS_INTERVAL_SECONDS
        elif running >= self._next_threads:
            self._observe_threads()
            self._next_threads = running + THREADS_INTERVAL_SECONDS

    def observe_clock_when_due(self) -> None:
        """Read the clock that the frequency driver reports, if the next reading is due."""
        now = time.monotonic()
        if now >= self._next_clock and self.is_running():
            self._next_clock = now + CLOCK_INTERVAL_SECONDS
            if (hertz := read_scaling_frequency(self.cpus)) is not None:
                self.frequencies.append(hertz)

    @property
    def _placement_seen(self) -> ObservedPlacement | None:
        """Return the observed placement for the record; None if the load ended too soon."""
        memory = self.memory_by_node
        seen: ObservedPlacement = {"threads": self.threads, "memory_bytes_by_node": memory}
        if self.pages_move_while_running:
            seen["memory_bytes_by_node_at_first"] = self.memory_at_first
        return seen if self.threads else None

    def is_running(self) -> bool:
        """Return whether the process still runs; keep end time and status of an ended process."""
        if self.returncode is not None:
            return False
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return True
        self.ended = time.monotonic()
        self.counters.stop_counting()
        self.returncode = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.processor_seconds = usage.ru_utime + usage.ru_stime
        return False

    def send_signal(self, name: str) -> None:
        """Send a signal to the load's process group; SIGKILL also reaches all its descendants."""
        if name == "KILL":
            kill_program(self.process.pid)
            return
        with contextlib.suppress(ProcessLookupError):  # the load has just ended
            os.killpg(self.process.pid, signal.Signals[f"SIG{name}"])

    def send_stop_signal(self) -> None:
        """Stop counting, read the nodes of moving pages once more, and send the stop signal.

        A load that has ended, or that already got a signal, gets no signal.
        """
        if self.is_running() and self.signalled is None:
            self.counters.stop_counting()
            if self.pages_move_while_running:
                self._observe_placement()
            self.signalled = self.spec["stop"]["signal"]
            self.send_signal(self.signalled)

    def wait_for_end_or_kill(self) -> None:
        """Wait for the end of the load; kill a load that ignores the stop signal."""
        limit = time.monotonic() + GRACE_SECONDS
        while self.is_running():
            if time.monotonic() > limit:
                self.signalled = "KILL"
                self.send_signal("KILL")
            time.sleep(0.002)
        self.reader.join(GRACE_SECONDS)
        # While a child of the tool keeps the output open, the thread that reads the output still
        # needs this pipe.
        for pipe in (self.process.stdin, None if self.reader.is_alive() else self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        self.counters.close_counters()
        self.stderr.seek(0)
        self.errors = self.stderr.read(OUTPUT_LIMIT_BYTES).decode(errors="replace")
        self.stderr.close()

    def _last_message(self) -> str:
        """Return the tool's last line of output, for the reason of a failure."""
        self.stderr.flush()
        text = (self.folder / ".stderr").read_text(errors="replace").strip()
        text = text or "".join(self.lines).strip()
        return text.splitlines()[-1][:300] if text else "it printed nothing"

    def _read_outputs(self) -> dict[str, str]:
        """Return name -> output: ``stdout``, ``stderr`` and the files that the load wrote."""
        files = (
            path
            for path in sorted(self.folder.iterdir())
            if path.is_file() and path.name not in self.spec["files"] and path.name[0] != "."
        )
        texts = {path.name: path.read_text(errors="replace")[:OUTPUT_LIMIT_BYTES] for path in files}
        return {"stdout": "".join(self.lines), "stderr": self.errors, **texts}

    def _program_facts(self) -> ProgramFacts:
        """Return the name, path and version of the tool that the load runs."""
        name = self.spec["needs"]["program"]
        lines = _lines_of_version_query(self.version)
        facts: ProgramFacts = {
            "name": name,
            "path": shutil.which(name),
            "version": lines[0] if lines else None,
        }
        return {**facts, "emulator": self.emulator} if self.emulator else facts

    def record_of_load(self) -> LoadRecord:
        """Return the part of the record that describes this load."""
        counted = self.counters.counted
        return {
            **self.spec,
            "program": self._program_facts(),
            "began_monotonic_seconds": self.began,
            "ended_monotonic_seconds": self.ended,
            "processor_seconds": self.processor_seconds,
            "exit_status": self.returncode,
            "signalled": self.signalled,
            "placement_seen": self._placement_seen,
            "counted": {name: counted[name] for name in self.spec.get("counters", {})},
            "clock": clock_of_load(
                {name: counted[name] for name in self.clock_counters},
                len(self.cpus),
                self.frequencies,
            ),
            "outputs": self._read_outputs(),
        }


def _total_bytes(bytes_by_node: dict[str, int] | None) -> int:
    """Return the sum of the bytes on all nodes; 0 if no bytes have been read yet."""
    return sum((bytes_by_node or {}).values())


def _lines_of_version_query(query: subprocess.Popen[str] | None) -> list[str]:
    """Return the lines that a version query printed; empty if the query takes too long."""
    # A slow file system or licence server may delay the version. The values are valid without the
    # version.
    if query is None:
        return []
    try:
        return query.communicate(timeout=VERSION_SECONDS)[0].strip().splitlines()
    except subprocess.TimeoutExpired:
        kill_program(query.pid)
        query.communicate()
        return []


def _start_version_query(need: RequiredProgram) -> subprocess.Popen[str] | None:
    """Start a process that prints the tool's version; None if no process can be started."""
    if "version" not in need:
        return None
    with contextlib.suppress(OSError):  # the values are valid without the version
        return subprocess.Popen(
            need["version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # In a new session, a slow query can be killed with its children.
            start_new_session=True,
        )
    return None

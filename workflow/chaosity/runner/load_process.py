"""One load as a process: started without a shell, read line by line, stopped by a signal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaosity.runner import observed_placement
from chaosity.runner.event_counters import LoadCounters
from chaosity.runner.progress import Series, samples_from_events
from chaosity.runner.tool_output import ExtractionError, parse_json_lines

# Threads of a load that has no barrier are looked at this often, which costs microseconds.
THREADS_LOOK_SECONDS = 0.1
# Its pages are looked at after this time and then each time the time has doubled: the kernel walks
# all its page tables for it, and the last look still comes late in any run.
PAGES_LOOK_SECONDS = 0.25
# A load that does not heed the stop signal for this long is killed.
GRACE_SECONDS = 20.0
# More output than this is a runaway tool, not a result.
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024


class LoadError(Exception):
    """A load could not be started or did not get ready; the text says why."""


class LoadProcess:
    """A load of a point while it runs.

    Args:
        spec: the load as the point describes it.
        folder: working folder of this load, made by the caller.
    """

    def __init__(self, spec: Mapping[str, Any], folder: Path) -> None:
        self.spec, self.folder, self.name = spec, folder, spec["name"]
        self.lines: list[str] = []
        self.size = 0
        self.ready = threading.Event()
        self.samples: Series = []
        self.threads: list[dict[str, Any]] = []
        self.memory_by_node: dict[str, int] | None = None
        self.memory_at_first: dict[str, int] | None = None
        self.next_threads, self.next_pages = THREADS_LOOK_SECONDS, PAGES_LOOK_SECONDS
        self.began = self.ended = 0.0
        self.signalled: str | None = None
        self.returncode: int | None = None
        self.processor_seconds = 0.0
        self.counters = LoadCounters({}, ())

    @property
    def barrier(self) -> bool:
        """Whether the load gets ready first and then waits for the start."""
        return self.spec["start"] == "barrier"

    @property
    def silent(self) -> bool:
        """Whether it reports no progress, so that its value is of its whole run."""
        return not self.spec["progress"]

    @property
    def has_told(self) -> bool:
        """Whether it has told a sample, or need not since it prints none while it runs."""
        return bool(self.samples) or not (self.spec["progress"] or {}).get("event")

    @property
    def stoppable(self) -> bool:
        """Whether the runner ends it; other loads end by themselves."""
        return self.spec["stop"]["by"] == "runner"

    def start(self, lock: int) -> None:
        """Write its files and start its process, which inherits the host's lock.

        Raises:
            LoadError: the program is not there or cannot be run.
        """
        for name, text in self.spec["files"].items():
            (self.folder / name).write_text(text)
        program = self.spec["command"][0]
        need = self.spec["needs"]
        if shutil.which(program) is None:
            raise LoadError(f"{program} is not installed; run ansible-playbook provision.yml")
        if shutil.which(need["program"]) is None:  # the command may begin with numactl
            raise LoadError(f"{need['program']} is not installed; {need['install']}")
        self.stderr = (self.folder / ".stderr").open("w+b")
        self.version = start_version_query(self.spec["needs"])
        cpus = observed_placement.parse_cpus(self.spec["placement"]["cpus"])
        self.counters = LoadCounters(self.spec.get("counters", {}), cpus)
        if not self.barrier:
            self.counters.start()
        try:
            self.process = subprocess.Popen(
                self.spec["command"],
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C", **self.spec["environment"]},
                stdin=subprocess.PIPE if self.barrier else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                pass_fds=(lock,),
                start_new_session=True,  # so that a stop reaches all that the tool starts
            )
        except OSError as error:
            raise LoadError(f"{program} cannot be run: {error}") from error
        self.began = time.monotonic()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        """Collect standard output; runs in a thread until the tool closes it."""
        assert self.process.stdout is not None
        progress = self.spec["progress"] or {}
        for raw in self.process.stdout:
            line = raw.decode(errors="replace")
            self.size += len(raw)
            if self.size > OUTPUT_LIMIT_BYTES:
                self.send("KILL")
                break
            self.lines.append(line)
            if '"ready"' in line:
                self.ready.set()
            elif progress.get("event") and f'"{progress["event"]}"' in line:
                try:
                    self.samples += samples_from_events(progress, line)
                except (ExtractionError, KeyError):
                    continue  # judged when the whole output is read

    def wait_ready(self, seconds: float) -> None:
        """Wait for the line that says that the load waits at the barrier.

        Raises:
            LoadError: it ended or took too long; the text holds what it said.
        """
        limit = time.monotonic() + seconds
        while not self.ready.wait(0.002):
            if not self.running():
                self.reader.join(1)
                if self.ready.is_set():
                    return
                raise LoadError(f"ended before it was ready: {self.complaint()}")
            if time.monotonic() > limit:
                raise LoadError(f"was not ready after {seconds:g} s")
        self.look()

    def release(self) -> None:
        """Open the barrier, and count from here on."""
        self.counters.start()
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()
        except OSError as error:
            raise LoadError(f"ended at the barrier: {self.complaint()}") from error

    def look(self) -> None:
        """Ask the kernel where the load's threads and pages are."""
        self.look_at_threads()
        seen = observed_placement.read_process_memory(self.process.pid, self.mapping())
        self.memory_by_node = seen or self.memory_by_node
        self.memory_at_first = self.memory_at_first or self.memory_by_node

    @property
    def settles(self) -> bool:
        """Whether its pages are moved while it runs, so that they are looked at in the end too."""
        return bool(self.spec["placement"].get("settles"))

    def mapping(self) -> observed_placement.MappingAddresses:
        """Where the memory is that it measures, as its ready line says."""
        key = self.spec["placement"].get("mapping")
        if key is None:
            return None
        try:
            ready = [line for line in parse_json_lines("".join(self.lines)) if key in line]
        except ExtractionError:
            return None  # judged when the whole output is read
        return ready[0][key] if ready else None

    def look_at_threads(self) -> None:
        """Keep the look that saw most threads: a tool may start and end with one."""
        seen = observed_placement.read_process_threads(self.process.pid)
        if len(seen) >= len(self.threads):
            self.threads = seen

    def look_when_due(self) -> None:
        """Look at the placement of a load that has no barrier."""
        if self.barrier:
            return
        running = time.monotonic() - self.began
        if running >= self.next_pages:
            self.look()
            self.next_pages *= 2
        elif running >= self.next_threads:
            self.look_at_threads()
            self.next_threads = running + THREADS_LOOK_SECONDS

    @property
    def placement_seen(self) -> dict[str, Any] | None:
        """What the kernel said, for the record; None when the load was gone too soon."""
        if not self.threads:
            return None
        first = {"memory_bytes_by_node_at_first": self.memory_at_first} if self.settles else {}
        return {"threads": self.threads, "memory_bytes_by_node": self.memory_by_node, **first}

    def running(self) -> bool:
        """Whether the process still runs; notes the time when it no longer does."""
        if self.returncode is not None:
            return False
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return True
        self.ended = time.monotonic()
        self.counters.stop()
        self.returncode = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.processor_seconds = usage.ru_utime + usage.ru_stime
        return False

    def send(self, name: str) -> None:
        """Send a signal to the load and all that it started."""
        try:
            os.killpg(self.process.pid, signal.Signals[f"SIG{name}"])
        except ProcessLookupError:
            return  # it ended in between

    def stop(self) -> None:
        """Ask the load to finish and report; where pages move, see where they came to lie."""
        if self.running() and self.signalled is None:
            self.counters.stop()
            if self.settles:
                self.look()
            self.signalled = self.spec["stop"]["signal"]
            self.send(self.signalled)

    def finish(self) -> None:
        """Wait for the end, killing a load that ignores the request."""
        limit = time.monotonic() + GRACE_SECONDS
        while self.running():
            if time.monotonic() > limit:
                self.signalled = "KILL"
                self.send("KILL")
            time.sleep(0.002)
        self.reader.join(GRACE_SECONDS)
        self.counters.close()
        self.stderr.seek(0)
        self.errors = self.stderr.read(OUTPUT_LIMIT_BYTES).decode(errors="replace")
        self.stderr.close()

    def complaint(self) -> str:
        """What the tool said last, for a reason in one line."""
        self.stderr.flush()
        text = (self.folder / ".stderr").read_text(errors="replace").strip()
        text = text or "".join(self.lines).strip()
        return text.splitlines()[-1][:300] if text else "it said nothing"

    def outputs(self) -> dict[str, str]:
        """Raw output by name: ``stdout``, ``stderr`` and the files it left in its folder."""
        found = {"stdout": "".join(self.lines), "stderr": self.errors}
        for path in sorted(self.folder.iterdir()):
            given = self.spec["files"]
            if path.is_file() and not path.name.startswith(".") and path.name not in given:
                found[path.name] = path.read_text(errors="replace")[:OUTPUT_LIMIT_BYTES]
        return found

    def report(self) -> dict[str, Any]:
        """The load's part of the record."""
        return {
            **self.spec,
            "program": program_facts(self.spec["needs"], self.version),
            "began_monotonic_seconds": self.began,
            "ended_monotonic_seconds": self.ended,
            "processor_seconds": self.processor_seconds,
            "exit_status": self.returncode,
            "signalled": self.signalled,
            "placement_seen": self.placement_seen,
            "counted": self.counters.counted,
            "outputs": self.outputs(),
        }


def start_version_query(need: Mapping[str, Any]) -> subprocess.Popen[str] | None:
    """Ask a tool for its version while the load gets ready; the answer is fetched at the end."""
    if "version" not in need or shutil.which(need["program"]) is None:
        return None
    return subprocess.Popen(
        need["version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def program_facts(need: Mapping[str, Any], version: subprocess.Popen[str] | None) -> dict[str, Any]:
    """Path and version of the tool behind a load, as it says itself."""
    said = version.communicate(timeout=10)[0].strip().splitlines() if version else []
    return {
        "name": need["program"],
        "path": shutil.which(need["program"]),
        "version": said[0] if said else None,
    }

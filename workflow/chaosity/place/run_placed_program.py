"""Run a program with placed pages: start it, move and observe its pages, and write a report."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import selectors
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import FrameType

from chaosity.errors import UserError
from chaosity.place import numa_system_calls, page_migration, page_placement, placement_search
from chaosity.place.page_placement import (
    PlacementPlan,
    PlacementRequest,
    format_shares,
    largest_share_deviation,
    shift_shares_to_workers,
)
from chaosity.place.placement_search import AutonumaSettling, DwpSearch
from chaosity.records.record_files import write_atomically
from chaosity.runner.linux_settings import WEIGHTS, HeldKernelSettings, hold_kernel_settings
from chaosity.runner.observed_state import SHARE_TOLERANCE, read_emulator
from chaosity.runner.point_measurement import READY_SECONDS
from chaosity.runner.tool_output import parse_event_line

# Signals that this process passes on to the program. SIGKILL cannot be passed on; if it ends this
# process, the kernel kills the program too.
_SIGNALS_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT")
# Signals that a terminal sends to all processes of its foreground group, so also to the program.
_SIGNALS_OF_TERMINAL = ("SIGINT", "SIGQUIT")
_OUTPUT_CHUNK_BYTES = 1 << 16
# This line tells the runner that the pages of the program no longer move; the runner uses only
# samples after this line.
_LINE_OF_SETTLED_PLACEMENT = b'{"event":"settled"}\n'


class _ChildProgram:
    """The program of a placement request while it runs.

    With `by_line`, the output of the program goes to a pseudo-terminal, because C programs write
    each line at once only to a terminal. `at_ready` is called with the value of `mapping` in the
    program's ready line; each function in `listeners` is called with each line and the time of the
    line in monotonic seconds. The exit status `status` and the running time `seconds` are None
    while the program runs.
    """

    def __init__(self, command: Sequence[str], plan: PlacementPlan, by_line: bool) -> None:
        self.command, self.plan = command, plan
        # A terminal sends its input only to its foreground process group. So a program that may
        # read from the terminal stays in the group of this process.
        self.own_group = not sys.stdin.isatty()
        self.by_line = by_line or sys.stdout.isatty()
        self.at_ready: Callable[[str | None], None] | None = None
        self.listeners: list[Callable[[str, float], None]] = []
        self.status: int | None = None
        self.seconds: float | None = None
        # Says whether the program is ready and its pages must still come to rest.
        self.must_settle = False
        self._rest = b""

    def start_program(self) -> None:
        """Start the program.

        Raises:
            UserError: the program is missing or cannot be run.
        """
        # Signals are blocked until their handlers exist, since without a handler, a signal would
        # end this process but not the program.
        numbers = {signal.Signals[name] for name in _SIGNALS_PASSED_ON}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            self._start_program()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def _start_program(self) -> None:
        reading, writing = self._open_output()
        self.began = time.monotonic()
        try:
            self.process = subprocess.Popen(
                self.command,
                stdout=writing,
                preexec_fn=self._set_up_child,
                close_fds=False,  # the program inherits all open files, such as a lock
                process_group=0 if self.own_group else None,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"the program cannot be run: {error}", self.command[0]) from None
        finally:
            os.close(writing)
        self.output: int | None = reading
        self.ended = os.pidfd_open(self.process.pid)
        self.selector = selectors.PollSelector()  # epoll refuses files such as /dev/null
        self.selector.register(self.output, selectors.EVENT_READ)
        self.selector.register(self.ended, selectors.EVENT_READ)
        for name in _SIGNALS_PASSED_ON:
            is_passed = self.own_group or name not in _SIGNALS_OF_TERMINAL
            handler = self.send_signal if is_passed else lambda *_: None
            signal.signal(signal.Signals[name], handler)

    def _open_output(self) -> tuple[int, int]:
        """Return both ends of a terminal if the output is wanted line by line, else of a pipe."""
        if not self.by_line:
            return os.pipe()
        reading, writing = pty.openpty()
        attributes = termios.tcgetattr(writing)
        attributes[1] &= ~termios.OPOST  # the terminal must not add carriage returns
        termios.tcsetattr(writing, termios.TCSANOW, attributes)
        return reading, writing

    def _set_up_child(self) -> None:
        """Set up the child process before it starts the program, which inherits the setup."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        numa_system_calls.die_with_parent()
        numa_system_calls.set_mempolicy(self.plan.mode, self.plan.nodes)

    def send_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """Send a signal to the program, and to its descendants if it has its own process group."""
        with contextlib.suppress(ProcessLookupError):
            if self.own_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def let_program_run(self, seconds: float) -> bool:
        """Pass output on for `seconds`; return whether the program still runs.

        The function returns early when the program is ready and its pages must still come to rest.
        """
        limit = time.monotonic() + seconds
        while self.status is None:
            left = limit - time.monotonic()
            events = self.selector.select(max(0.0, left))
            ready = {key.fd for key, _ in events}
            if self.output in ready:
                self._relay_output()
            elif self.ended in ready:
                self._collect_status()
            if left <= 0.0 or self.must_settle:
                break
        return self.status is None

    def print_that_placement_settled(self) -> None:
        """Print the line that says that the pages no longer move."""
        if self.status is None:
            self._write_to_stdout(_LINE_OF_SETTLED_PLACEMENT)

    def _collect_status(self) -> None:
        """Collect the exit status after all output has been passed on."""
        code = self.process.wait()
        self.seconds = time.monotonic() - self.began
        # A shell reports this exit status for a program that a signal ended.
        self.status = 128 - code if code < 0 else code
        if self.output is not None:
            self._write_to_stdout(self._rest)
        self._close_output()
        self.selector.close()

    def _close_output(self) -> None:
        if self.output is not None:
            self.selector.unregister(self.output)
            os.close(self.output)
            self.output = None

    def _relay_output(self) -> None:
        """Pass on the program's output: complete lines, and begun lines that cannot be events."""
        assert self.output is not None
        try:
            chunk = os.read(self.output, _OUTPUT_CHUNK_BYTES)
        except OSError:  # the other side of the terminal is closed
            chunk = b""
        if not chunk:
            self._write_to_stdout(self._rest)
            self._close_output()
            return
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._inspect_line(line.decode(errors="replace"))
            self._write_to_stdout(line + b"\n")
        whole_lines = self.listeners or self.plan.settle
        if rest and not rest.startswith(b"{") and not whole_lines:
            self._write_to_stdout(rest)
            rest = b""
        self._rest = rest

    def _inspect_line(self, line: str) -> None:
        ready = parse_event_line(line, "ready") if self.at_ready else None
        if ready and self.at_ready:
            self.at_ready(ready.get("mapping"))
            self.must_settle = self.plan.settle
        for listener in self.listeners:
            listener(line, time.monotonic())

    def _write_to_stdout(self, data: bytes) -> None:
        """Write to standard output; if nobody reads it, stop reading the program's output."""
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            self._close_output()


def _check_program_exists(command: Sequence[str]) -> None:
    """Check that the command names a program that exists.

    Raises:
        UserError: the command names no program, or the program is not found.
    """
    if not command:
        raise UserError(
            "the command line names no program", remedy="end with -- PROGRAM ARGUMENT ..."
        )
    if shutil.which(command[0]) is None:
        raise UserError("the command is not an executable program on this host", command[0])


# Pages are moved if the share of a node deviates by more than this number. The number is below the
# accepted deviation, so that a little memory touched later does not exceed the accepted deviation.
MOST_DEVIATION_WITHOUT_MOVE = 0.005
# The pages are first observed soon, because programs may end soon. After each observation, the
# interval doubles, because the kernel walks all page tables for an observation. The program may
# touch pages late, so observations go on to its end.
FIRST_OBSERVATION_SECONDS, LONGEST_INTERVAL_SECONDS = 0.02, 5.0
# Largest share of a processor's time that observations may take. The share is larger after the
# memory of the program has grown, because new pages may be on wrong nodes until the next
# observation.
OBSERVING_SHARE, OBSERVING_SHARE_OF_GROWN_MEMORY = 0.02, 0.1
# The search begins when the program's memory is complete, which means that it grew by less than
# this part between two observations.
MOST_GROWTH_OF_COMPLETE_MEMORY = 0.02
# Longest time of a search before the measurement: half of the time in which a load must be ready.
# In the other half, the program touches its memory and pages are moved.
MOST_SEARCH_SECONDS = READY_SECONDS / 2
# Smallest share of a node in a search; a share of 0 would need the weight 0, which the kernel
# lacks.
_LEAST_SHARE_IN_SEARCH = 1e-3
# Exit status if the program ended with status 0, but its pages were not on the wanted nodes.
MISPLACED_STATUS = 3


class _PlacementSession:
    """Run a program and keep its pages on the wanted nodes."""

    def __init__(
        self, request: PlacementRequest, plan: PlacementPlan, held: HeldKernelSettings
    ) -> None:
        self.request, self.plan, self.held = request, plan, held
        by_line = plan.search and request.rate.startswith(placement_search.LINES)
        self.program = _ChildProgram(request.command, plan, by_line)
        self.wanted = plan.wanted
        self.mapping: str | None = None
        self.bytes_by_node: dict[int, int] = {}
        self.moved = 0
        self.emulator: str | None = None
        self.cost = 0.0  # processor time of the latest observation, in seconds
        self.resident = 0  # resident bytes at the latest observation
        self.search: DwpSearch | None = None
        self.search_seconds = 0.0
        self.settling: AutonumaSettling | None = None
        self.search_problem: str | None = None
        self.searchable = True

    def run_program_to_end(self) -> int:
        """Run the program to its end; return the exit status."""
        self.program.at_ready = self._place_at_ready
        self.program.start_program()
        if self.program.own_group:
            self.held.guardian.kill_too_if_this_process_is_killed(self.program.process.pid)
        if self.plan.search:
            self._watch_pages(searching=True)
        self._watch_pages()
        if self.plan.search and not self.search:
            state = "was ready" if self.plan.settle else "had allocated its memory"
            self.search_problem = f"the program ended before it {state}"
        self._write_report()
        return self._exit_status()

    def _place_at_ready(self, mapping: str | None) -> None:
        """Place the memory of a program that is ready, before the runner gets the ready line."""
        if mapping or self.plan.settle:
            self.mapping = mapping
            self._observe_and_move()
            self._write_report()

    def _watch_pages(self, searching: bool = False) -> None:
        """Observe and move the pages until the program ends or, with `searching`, a search ends."""
        delay = FIRST_OBSERVATION_SECONDS
        source: placement_search.RateSource | None = None
        if searching:
            source = placement_search.rate_source_from_option(
                self.request.rate, self.program.process.pid
            )
            self.program.listeners.append(source.read_line)
        while self._wait_for_observation(delay):
            if self.program.must_settle:
                self._wait_until_pages_rest(source)
                if source:
                    return
            if self.mapping and not source and self.wanted is not None:
                delay = LONGEST_INTERVAL_SECONDS  # the measured memory is complete and placed
                continue
            before = sum(self.bytes_by_node.values())
            self._observe_and_move()
            now = sum(self.bytes_by_node.values())
            complete = self.mapping or now - before <= MOST_GROWTH_OF_COMPLETE_MEMORY * now
            # With --settle, the search begins after the ready line. If a program prints no ready
            # line, the search begins after the program's first progress.
            runs = not self.plan.settle or (source and source.series)
            if source and now and complete and runs:
                self._search_dwp(source)
                return
            delay = max(self.cost / OBSERVING_SHARE, min(2 * delay, LONGEST_INTERVAL_SECONDS))

    def _wait_for_observation(self, seconds: float) -> bool:
        """Wait until the pages must be observed again; return False if the program has ended.

        Pages are observed after `seconds`, after the program's memory grew, or when the program is
        ready and its pages must come to rest.
        """
        now = time.monotonic()
        soonest, until = now + self.cost / OBSERVING_SHARE_OF_GROWN_MEMORY, now + seconds
        while self.program.let_program_run(min(until - now, LONGEST_INTERVAL_SECONDS)):
            now = time.monotonic()
            resident = (
                page_migration.resident_bytes(self.program.process.pid) if now >= soonest else 0
            )
            grown = resident > (1 + MOST_DEVIATION_WITHOUT_MOVE) * self.resident
            if now >= until or grown or self.program.must_settle:
                return True
        return False

    def _wait_until_pages_rest(self, source: placement_search.RateSource | None) -> None:
        """Let the program run until its pages no longer move, then print a line for the runner."""
        # If a `source` of the program's rate is given, a search moves the pages; else the kernel
        # moves the pages.
        self.program.must_settle = False
        if source is not None:
            self._search_dwp(source, time.monotonic() + MOST_SEARCH_SECONDS)
        else:
            self.settling = AutonumaSettling()
            self.settling.wait_until_pages_rest(self.program.let_program_run, self._observe_shares)
            self._write_report()
        self.program.print_that_placement_settled()

    def _observe_shares(self) -> dict[int, float]:
        """Observe the pages and return node -> present share of the pages."""
        self._observe_and_move()
        return self._seen_shares

    def _observe_and_move(self) -> None:
        """Observe the nodes of the pages, and move pages that are on wrong nodes."""
        began = time.thread_time()
        pid = self.program.process.pid
        self.resident = page_migration.resident_bytes(pid)
        areas = page_migration.find_memory_areas(pid, self.mapping)
        self.cost = time.thread_time() - began
        seen = page_migration.page_bytes_by_node(areas)
        if not seen:
            # The program has no memory yet or has just ended, so the last observation stays valid.
            return
        self.bytes_by_node = seen
        self.emulator = self.emulator or read_emulator(pid)
        if self.wanted is None or not self.plan.moves:
            return
        if (
            largest_share_deviation(self.wanted, page_migration.page_shares_by_node(seen))
            > MOST_DEVIATION_WITHOUT_MOVE
        ):
            try:
                self.moved += page_migration.move_pages_to_shares(areas, self.wanted)
            except OSError:
                return  # the program ended while its pages were moved
            areas = page_migration.find_memory_areas(pid, self.mapping)
            self.bytes_by_node = page_migration.page_bytes_by_node(areas) or seen

    def _search_dwp(self, source: placement_search.RateSource, until: float = math.inf) -> None:
        """Search for the best data-to-worker proximity, and stop at the time `until`."""
        began = time.monotonic()
        meter = placement_search.RateMeter(source, self.program.let_program_run, until)
        self.search = DwpSearch(meter, self._move_to_dwp)
        try:
            self.search.find_best_dwp_and_move_pages()
            if not self.search.settled:
                self.search_problem = f"ended after {until - began:.0f} s with the best DWP so far"
        except placement_search.ProgramEndedError:
            self.search_problem = "the program ended before the search was finished"
        except UserError as error:
            self.search_problem, self.searchable = str(error), False
        finally:
            self.program.listeners.clear()
            self.search_seconds = time.monotonic() - began
        self._write_report()

    def _move_to_dwp(self, dwp: float) -> None:
        """Move the pages of the running program; memory touched later follows the same weights."""
        assert self.plan.wanted is not None
        self.wanted = shift_shares_to_workers(self.plan.wanted, self.request.workers, dwp)
        if self.plan.method == page_placement.WEIGHTED_INTERLEAVE:
            used = {
                node: max(self.wanted[node], _LEAST_SHARE_IN_SEARCH) for node in self.plan.nodes
            }
            self.held.change_kernel_settings(page_placement.kernel_weight_settings(used))
        self._observe_and_move()

    @property
    def _seen_shares(self) -> dict[int, float]:
        """Return node -> share of the pages at the latest observation."""
        return page_migration.page_shares_by_node(self.bytes_by_node)

    @property
    def _largest_deviation(self) -> float | None:
        """Return the largest deviation of a node's share from the wanted share.

        The result is None if no shares are wanted, or if no pages were seen.
        """
        if self.wanted is None or not self.bytes_by_node:
            return None
        return largest_share_deviation(self.wanted, self._seen_shares)

    @property
    def _reason_for_misplaced_pages(self) -> str | None:
        """Return the reason why pages may be on wrong nodes; None if no page is on a wrong node."""
        if not self.bytes_by_node:
            status = self.program.status
            end = f" before it ended with status {status}" if status is not None else ""
            return (
                "no memory of the program was seen (at least one MiB in one mapping)"
                f"{end}: the program allocates nothing, or ended too early"
            )
        if self._largest_deviation is not None and self._largest_deviation > SHARE_TOLERANCE:
            return (
                f"a node's share deviates by {100 * self._largest_deviation:.1f} % of all pages:"
                f" wanted {format_shares(self.wanted or {})},"
                f" seen {format_shares(self._seen_shares)}"
            )
        return None

    @property
    def _is_placed(self) -> bool | None:
        """Return whether the pages are placed as wanted; None if `_largest_deviation` is None."""
        return (
            None if self._largest_deviation is None else self._largest_deviation <= SHARE_TOLERANCE
        )

    def _placement_report(self) -> dict[str, object]:
        """Return the result of the placement so far as JSON."""
        search, searched = self.search, self.plan.search
        return {
            "policy": self.request.policy,
            "method": self.plan.method,
            "workers": self.request.workers,
            "wanted": self.wanted,
            "seen": self._seen_shares,
            "bytes_by_node": self.bytes_by_node,
            "largest_departure": self._largest_deviation,
            "placed": self._is_placed,
            "reason": self._reason_for_misplaced_pages,
            "moved_blocks": self.moved,
            "dwp": (search.present_dwp if search else 0.0) if searched else None,
            "steps": [
                {
                    "dwp": dwp,
                    "rate": rate.value,
                    "relative_half_width": rate.relative_half_width,
                    "seconds": rate.seconds,
                }
                for dwp, rate in (search.measured if search else [])
            ],
            "search": {
                "seconds": self.search_seconds,
                "settled": bool(search and search.settled),
                "reason": self.search_problem,
            }
            if searched
            else None,
            "settling": asdict(self.settling) if self.settling else None,
            "settings": self.held.former_and_present_values(),
            "exit_status": self.program.status,
            "program_seconds": self.program.seconds,
            "emulator": self.emulator,
        }

    def _write_report(self) -> None:
        """Write the report, if it was requested."""
        if self.request.report is not None:
            text = json.dumps(self._placement_report(), indent=1) + "\n"
            try:
                write_atomically(self.request.report, text)
            except OSError as error:
                what = f"the report cannot be written: {error}"
                raise UserError(what, str(self.request.report)) from None

    def _exit_status(self) -> int:
        """Return the program's exit status; `MISPLACED_STATUS` if pages are misplaced."""
        if self.program.status:  # the messages of a failed program explain more than this error
            return self.program.status
        search = f"the search did not end: {self.search_problem}" if self.search_problem else None
        for message in filter(None, (self._reason_for_misplaced_pages, search)):
            print(f"chaosity-place: {message}", file=sys.stderr)
        return MISPLACED_STATUS if self._is_placed is False or not self.searchable else 0


def run_program_with_placed_pages(request: PlacementRequest) -> int:
    """Run a program with its pages placed; return the exit status.

    Raises:
        UserError: the request cannot be met, and the program was not started; or the report cannot
            be written, in which case the program was started.
    """
    _check_program_exists(request.command)
    if request.report is not None and not os.access(request.report.absolute().parent, os.W_OK):
        remedy = "name a file in a writable folder"
        raise UserError("the folder of the report is not writable", str(request.report), remedy)
    plan = page_placement.plan_placement(request)
    # A benchmark names one source of the rate for all its policies, but only a search reads the
    # rate. So a host that cannot count instructions is an error only for policies with a search.
    if plan.search or request.rate != placement_search.INSTRUCTIONS:
        placement_search.check_rate_is_readable(request.rate)
    # The process that starts the program first moves to the processing units of the program, and
    # the program inherits these units. On other units, the starting process would disturb
    # co-running loads, and the runner requires that all processes of a load stay on the load's
    # units.
    os.sched_setaffinity(0, plan.cpus)
    # During a search, the kernel's weights change with the shares, so that memory that is touched
    # later follows the same shares.
    varied = [name for name in plan.settings if plan.search and name.startswith(WEIGHTS)]
    with hold_kernel_settings(plan.settings, request.root, varied) as held:
        return _PlacementSession(request, plan, held).run_program_to_end()

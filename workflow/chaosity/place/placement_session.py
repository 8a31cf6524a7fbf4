"""One run of a program with its pages placed: started, placed, watched, searched, reported."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

from chaosity.errors import UserError
from chaosity.place import page_migration, planning, program_rate
from chaosity.place.barrier_proxy import BarrierProxy, Phase
from chaosity.place.child_program import ChildProgram, check_program_exists
from chaosity.place.page_shares import format_shares, largest_share_deviation, shift_to_workers
from chaosity.place.planning import PlacementPlan, PlacementRequest
from chaosity.place.settling import DwpSearch, KernelSettling
from chaosity.records import write_atomically
from chaosity.runner import kernel_settings
from chaosity.runner import point_measurement as runner
from chaosity.runner.observed_placement import SHARE_TOLERANCE

# Pages are moved beyond this, so that what is touched a little later does not break the tolerance.
AIM = 0.005
# The first look comes soon, since programs may end soon; then each time the time has doubled, since
# the kernel walks all page tables for one. Pages are touched late too, so the looks go on.
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.02, 5.0
# Looking may take this share of a processor's time, and this one where memory has grown: its pages
# are not where they should be before the next look.
LOOKING_SHARE, GROWING_SHARE = 0.02, 0.1
# Memory that has grown by less than this between two looks is all there: the search can begin.
GROWTH = 0.02
# A search that others wait for ends by then: half of what the runner gives a load for getting
# ready; the other half is for touching the memory and for moves.
SETTLE_SECONDS = runner.READY_SECONDS / 2
# Exit status when the program ended well and its pages were not where they should be.
NOT_PLACED = 3


class PlacementSession:
    """A program with its pages under watch.

    Args:
        request: what was asked.
        plan: how it is met.
        held: the kernel's settings.
    """

    def __init__(
        self, request: PlacementRequest, plan: PlacementPlan, held: kernel_settings.HeldSettings
    ) -> None:
        self.request, self.plan, self.held = request, plan, held
        by_line = plan.search and request.rate.startswith(program_rate.LINES)
        gate = BarrierProxy() if plan.settle else None
        self.program = ChildProgram(request.command, plan.mode, plan.nodes, by_line, gate)
        self.wanted = plan.wanted
        self.mapping: str | None = None
        self.bytes_by_node: dict[int, int] = {}
        self.moved = 0
        self.cost = 0.0  # of the latest look, in seconds of a processor
        self.resident = 0  # bytes at the latest look
        self.search: DwpSearch | None = None
        self.search_seconds = 0.0
        self.settling: KernelSettling | None = None
        self.why_no_search: str | None = None
        self.searchable = True

    def run(self) -> int:
        """Run it to its end; returns the exit status."""
        self.program.at_ready = self.ready
        self.program.start()
        if self.program.group is not None:
            self.held.watch(self.program.group)
        if self.plan.search:
            self.follow(searching=True)
        self.follow()
        if self.plan.search and not self.search:
            what = "it was ready" if self.plan.settle else "its memory was all there"
            self.why_no_search = f"the program ended before {what}"
        self.report()
        return self.answer()

    def ready(self, mapping: str | None) -> None:
        """The program waits with its memory touched: place that before anybody hears of it."""
        if mapping or self.plan.settle:
            self.mapping = mapping
            self.look()
            self.report()

    def follow(self, searching: bool = False) -> None:
        """Look after the pages until the program ends, or until they are all there to search."""
        delay = FIRST_LOOK_SECONDS
        if searching:
            source = program_rate.open_rate_source(self.request.rate, self.program.process.pid)
            self.program.listeners.append(source.line)
        while self.pause(delay):
            if self.program.at_barrier:
                self.settle(source if searching else None)
                if searching:
                    return
            if self.mapping and not searching and self.wanted is not None:
                delay = LONGEST_LOOK_SECONDS  # its memory is all there, and was judged
                continue
            before = sum(self.bytes_by_node.values())
            self.look()
            now = sum(self.bytes_by_node.values())
            there = self.mapping or now - before <= GROWTH * now
            if searching and now and there and self.runs_already(source):
                self.find(source)
                return
            delay = max(self.cost / LOOKING_SHARE, min(2 * delay, LONGEST_LOOK_SECONDS))

    def pause(self, seconds: float) -> bool:
        """Wait for the next look, which is due earlier when the memory has grown.

        Returns whether the program still runs. It returns early at a barrier that is ours to open.
        """
        now = time.monotonic()
        soonest, until = now + self.cost / GROWING_SHARE, now + seconds
        while self.program.pump(min(until - now, LONGEST_LOOK_SECONDS)):
            now = time.monotonic()
            if now >= until or self.program.at_barrier or (now >= soonest and self.has_grown()):
                return True
        return False

    def has_grown(self) -> bool:
        """Whether there is more memory than at the latest look, by what is cheap to ask."""
        resident = page_migration.resident_bytes(self.program.process.pid)
        return resident > (1 + AIM) * self.resident

    def runs_already(self, source: program_rate.RateSource) -> bool:
        """Whether it waits at no barrier of ours, so that it is searched as it runs."""
        gate = self.program.gate
        if gate is not None and source.series:
            gate.leave_alone()  # it reports though nobody has heard that it is ready
        return gate is None or gate.phase is Phase.LEFT_ALONE

    def settle(self, source: program_rate.RateSource | None) -> None:
        """Have the program run until its placement has settled; then others hear that it is ready.

        Args:
            source: of its rate, for a search; None: the kernel moves the pages.
        """
        assert self.program.gate is not None
        self.program.gate.open()
        if source is not None:
            self.find(source, time.monotonic() + SETTLE_SECONDS)
        else:
            self.settling = KernelSettling()
            self.settling.wait(self.program.pump, self.look_again)
            self.report()
        self.program.settled()

    def look_again(self) -> dict[int, float]:
        """The share of each node now."""
        self.look()
        return self.seen

    def look(self) -> None:
        """See where the pages are, and move those that must be moved."""
        began = time.thread_time()
        self.resident = page_migration.resident_bytes(self.program.process.pid)
        found = page_migration.find_areas(self.program.process.pid, self.mapping)
        self.cost = time.thread_time() - began
        seen = page_migration.total_bytes_by_node(found)
        if not seen:
            return  # none yet, or it has just ended: what was seen before stands
        self.bytes_by_node = seen
        if self.wanted is None or not self.plan.moves:
            return
        if largest_share_deviation(self.wanted, page_migration.shares_by_node(seen)) > AIM:
            try:
                self.moved += page_migration.move_to_shares(found, self.wanted)
            except OSError:
                return  # it ended while its pages were moved
            after = page_migration.total_bytes_by_node(
                page_migration.find_areas(self.program.process.pid, self.mapping)
            )
            self.bytes_by_node = after or seen

    def find(self, source: program_rate.RateSource, until: float = math.inf) -> None:
        """Search the best data-to-worker proximity.

        Args:
            source: of the program's rate.
            until: when to stay at the best so far, by CLOCK_MONOTONIC in seconds.
        """
        began = time.monotonic()
        meter = program_rate.RateMeter(source, self.program.pump, until)
        self.search = DwpSearch(meter, self.move_to)
        try:
            self.search.run()
            if not self.search.settled:
                self.why_no_search = f"cut short after {until - began:.0f} s, at the best so far"
        except program_rate.ProgramEndedError:
            self.why_no_search = "the program ended before the search did"
        except (program_rate.NoRateError, UserError) as error:
            self.why_no_search, self.searchable = str(error), False
        finally:
            self.program.listeners.clear()
            self.search_seconds = time.monotonic() - began
        self.report()

    def move_to(self, dwp: float) -> None:
        """Move the pages of the running program, and let later ones follow."""
        assert self.plan.wanted is not None
        self.wanted = shift_to_workers(self.plan.wanted, self.request.workers, dwp)
        if self.plan.method == planning.WEIGHTED_INTERLEAVE:
            used = {node: max(share, 1e-3) for node, share in self.wanted.items()
                    if node in self.plan.nodes}  # fmt: skip
            self.held.change(planning.weight_settings(used))
        self.look()

    @property
    def seen(self) -> dict[int, float]:
        """The share of each node at the last look."""
        return page_migration.shares_by_node(self.bytes_by_node)

    @property
    def departure(self) -> float | None:
        """How far the share of any node is from what is wanted; None: nothing to compare."""
        if self.wanted is None or not self.bytes_by_node:
            return None
        return largest_share_deviation(self.wanted, self.seen)

    @property
    def reason(self) -> str | None:
        """Why the pages are not known to be where they should be; None: they are."""
        status = self.program.status
        if not self.bytes_by_node:
            so = "" if status is None else f" before it ended with status {status}"
            return (
                "no memory of the program's own was seen (a MiB at least in one mapping)"
                f"{so}: it allocates nothing, or ended too early"
            )
        if self.departure is not None and self.departure > SHARE_TOLERANCE:
            return (
                f"a node's share of the pages is {100 * self.departure:.1f} % of all pages off: "
                f"wanted {format_shares(self.wanted or {})}, seen {format_shares(self.seen)}"
            )
        return None

    @property
    def held_to(self) -> bool | None:
        """Whether the pages are where they should be; None: nothing to judge."""
        return None if self.departure is None else self.departure <= SHARE_TOLERANCE

    def document(self) -> dict[str, Any]:
        """What was done and seen, see docs/placement.md; nodes are texts, as keys in JSON are."""
        steps = self.search.measured if self.search else []
        return {
            "policy": self.request.policy,
            "method": self.plan.method,
            "workers": list(self.request.workers),
            "wanted": _keys(self.wanted),
            "seen": _keys(self.seen),
            "bytes_by_node": _keys(self.bytes_by_node),
            "largest_departure": self.departure,
            "placed": self.held_to,
            "reason": self.reason,
            "moved_blocks": self.moved,
            "dwp": self.search.now if self.search else 0.0 if self.plan.search else None,
            "steps": [
                {
                    "dwp": dwp,
                    "rate": rate.value,
                    "relative_half_width": rate.relative_half_width,
                    "seconds": rate.seconds,
                }
                for dwp, rate in steps
            ],
            "search": {
                "seconds": self.search_seconds,
                "settled": bool(self.search and self.search.settled),
                "reason": self.why_no_search,
            }
            if self.plan.search
            else None,
            "settling": vars(self.settling) if self.settling else None,
            "settings": self.held.report(),
            "exit_status": self.program.status,
        }

    def report(self) -> None:
        """Keep the report where it was asked for."""
        if self.request.report is not None:
            text = json.dumps(self.document(), indent=1) + "\n"
            try:
                write_atomically(self.request.report, text)
            except OSError as error:
                raise UserError(f"cannot be written: {error}", str(self.request.report)) from None

    def answer(self) -> int:
        """The exit status: the program's, unless that is 0 and its pages were elsewhere."""
        failed = self.held_to is False or not self.searchable
        searched = f"no search to its end: {self.why_no_search}" if self.why_no_search else None
        status = self.program.status or 0
        if status == 0:  # else the program's own last words tell more
            for said in filter(None, (self.reason, searched)):
                print(f"chaosity-place: {said}", file=sys.stderr)
        return NOT_PLACED if status == 0 and failed else status


def _keys(values: dict[int, Any] | None) -> dict[str, Any] | None:
    return None if values is None else {str(node): value for node, value in values.items()}


def run_placed(request: PlacementRequest) -> int:
    """Run a program with its pages placed; returns the exit status.

    Raises:
        UserError: something is wrong that can be known before; nothing has run then.
    """
    check_program_exists(request.command)
    if request.report is not None and not os.access(request.report.absolute().parent, os.W_OK):
        raise UserError("its folder cannot be written", str(request.report), "name another file")
    plan = planning.plan_placement(request)
    if plan.search:
        program_rate.check_rate_source(request.rate)
    # The program inherits its units. This process shares them, though it does little: elsewhere it
    # would disturb what runs beside, and a runner wants all that it started on the units asked for.
    os.sched_setaffinity(0, plan.cpus)
    # A search has weights follow the pages, for memory that is touched later.
    varied = [
        name for name in plan.settings if plan.search and name.startswith(kernel_settings.WEIGHTS)
    ]
    with kernel_settings.hold_settings(plan.settings, request.root, varied) as held:
        return PlacementSession(request, plan, held).run()

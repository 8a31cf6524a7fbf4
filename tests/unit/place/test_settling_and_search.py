"""Programs whose placement settles before they are measured: real ones, in every phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_files import Kernel, placed_point, report

from chaosity.documents.shipped_documents import load_benchmark
from chaosity.place import placement_search
from chaosity.place.placement_search import AutonumaSettling
from chaosity.runner import metric_values, record_checks
from chaosity.runner.point_measurement import READY_SECONDS
from chaosity.runner.point_measurement import measure_point as measured
from small_load import PROGRAM
from wait_until_true import wait_until

IMAGINED = str(Path(__file__).resolve().parents[2] / "support/placement_sensitive_program.py")
QUICK = "placement_search.SHORTEST, placement_search.LONGEST = 0.02, 0.1"
ENDLESS = "placement_search.LONGEST, placement_search.PRECISION = 1e9, 0.0"
HASTY = (
    "placement_search.LONGEST, placement_search.PRECISION = 0.2, 0.0;"
    "run_placed_program.MOST_SEARCH_SECONDS = 1.0"
)
MAIN = """
import sys
from chaosity.place import run_placed_program, placement_search
from chaosity.place.__main__ import main
{}
main(sys.argv[1:])
"""


pytestmark = pytest.mark.usefixtures("numa_maps")


def command(kernel: Kernel, constants: str, *arguments: str, policy: str = "bwap_uniform"):
    """The command line of chaosity-place with other constants."""
    given = kernel.arguments("--settle", *arguments, policy=policy)
    return [sys.executable, "-c", MAIN.format(constants), *given]


class Settles:
    """A program that waits at a barrier, while chaosity-place runs it."""

    def __init__(
        self, kernel: Kernel, folder: Path, constants: str, how: str, policy: str, opens: bool
    ) -> None:
        self.path = folder / "report.json"
        program = (sys.executable, "-c", PROGRAM, how)
        given = ("--report", str(self.path), "--", *program)
        self.process = subprocess.Popen(
            command(kernel, constants, *given, policy=policy),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if opens:  # as the runner does when it is ready
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def opened(self) -> int:
        """Wait until it runs; returns its process."""
        ready, sample = self.event(), self.event()
        assert sample["event"] == "sample"
        return int(ready["pid"])

    def event(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def until_settled(self) -> list[str]:
        """Read until its placement has settled; returns the names of the events."""
        names = [self.event()["event"]]
        while names[-1] != "settled":
            names.append(self.event()["event"])
        return names

    def ended(self) -> tuple[int, list[str], dict]:
        """End its input; returns exit status, the rest of the events' names, and the report."""
        self.process.stdin.close()
        names = [json.loads(line)["event"] for line in self.process.stdout]
        return self.process.wait(20), names, report(self.path)


@pytest.fixture
def start(kernel, tmp_path):
    """Starts a program; what is left of it is killed."""
    started = []

    def settles(
        constants: str, how: str = "", policy: str = "bwap_uniform", opens: bool = True
    ) -> Settles:
        started.append(Settles(kernel, tmp_path, constants, how, policy, opens))
        return started[-1]

    yield settles
    for one in started:
        one.process.kill()
        one.process.wait()


def searched_point(kernel: Kernel) -> dict[str, Any]:
    """A point whose load searches for its placement before it is measured."""
    program = (sys.executable, IMAGINED, "1", "1", "60", "16", "0.001", "barrier")
    given = ("--cpus", "0", "--report", "place.json", "--", *program)
    dwp = {"in": "place.json", "json": "dwp", "optional": True, "may_be_zero": True}
    load = {"start": "barrier", "metrics": {"passes_per_second": {"progress": True}, "dwp": dwp}}
    point = placed_point(command(kernel, QUICK, *given), 0.5, **load)
    point["loads"][0]["placement"]["settles"] = True
    return point


def test_the_runner_measures_only_what_follows_the_search(kernel):
    began = time.monotonic()
    record = measured(searched_point(kernel), 1)
    assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
    [load] = record["loads"]
    ready, *rest = [json.loads(line) for line in load["outputs"]["stdout"].splitlines()]
    assert ready["event"] == "ready"
    assert {line["event"] for line in rest} == {"sample"}
    # It ran before, and whoever looks at rates sees none of that.
    found = json.loads(load["outputs"]["place.json"])
    assert found["search"]["settled"] is True
    assert 0.1 < found["search"]["seconds"] < READY_SECONDS
    assert rest[0]["begin_ns"] * 1e-9 >= began + found["search"]["seconds"]
    assert found["exit_status"] == 128 + signal.SIGTERM  # the last report, and it is whole
    assert metric_values.metric_values_or_reasons(record)["program"]["dwp"][0] == found["dwp"]
    assert found["steps"][0]["dwp"] == 0.0
    for step in found["steps"]:
        # 2 ms by the formula; sleeping takes longer on a busy machine.
        assert 20.0 < step["rate"] <= 1 / 0.002
        assert step["relative_half_width"] > 0.0


def test_co_running_loads_run_during_the_search(kernel):
    """A load that the runner stops; the window of both begins when the search has ended."""
    point = searched_point(kernel)
    program = (sys.executable, IMAGINED, "1", "1", "60", "16", "0.001", "barrier")
    stop = {"by": "runner", "signal": "TERM", "exit": [-signal.SIGTERM]}
    beside = {"name": "beside", "start": "barrier", "stop": stop}
    point["loads"] += placed_point(["taskset", "-c", "0", *program], 0.5, **beside)["loads"]
    record = measured(point, 1)
    assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
    searched = json.loads(record["loads"][0]["outputs"]["place.json"])["search"]["seconds"]
    series = metric_values.series_by_load(record)
    first = {name: one[0][0][0] for name, one in series.items()}
    assert first["program"] - first["beside"] >= searched
    assert metric_values.common_window_of_loads(record, series)[0] == first["program"]


def test_a_crash_during_the_search_gives_the_programs_status(start):
    run = start(ENDLESS)
    os.kill(run.opened(), signal.SIGKILL)
    run.process.wait(20)
    status, names, found = run.ended()
    assert (status, set(names) - {"sample"}, found["exit_status"]) == (137, set(), 137)


def test_a_program_that_ends_during_the_search_does_not_settle(start):
    run = start(ENDLESS)
    run.opened()
    run.process.terminate()
    status, names, found = run.ended()
    assert (status, names[-1], "settled" in names) == (0, "done", False)
    assert found["search"]["settled"] is False
    assert found["search"]["reason"] == "the program ended before the search was finished"


def test_a_program_that_ends_at_its_barrier_does_not_settle(start):
    run = start(ENDLESS, opens=False)
    assert run.event()["event"] == "ready"
    assert run.ended()[1] == ["done"]


def test_a_search_out_of_time_stays_at_the_best_so_far(start):
    run = start(HASTY)
    assert set(run.until_settled()) == {"ready", "sample", "settled"}
    run.process.terminate()
    status, _, found = run.ended()
    assert status == 0
    assert found["search"]["settled"] is False
    assert "ended after 1 s with the best DWP" in found["search"]["reason"]
    notes = load_benchmark("chaosity_workload")["notes"]
    outputs = {"place.json": run.path.read_text()}
    [note] = record_checks.checks_of_tool_remarks(
        {"name": "work", "notes": notes, "outputs": outputs}
    )
    assert (note["name"], note["passed"]) == ("work: search to its end", False)
    assert note["detail"] == found["search"]["reason"]
    assert not note["decisive"]
    assert found["dwp"] in [step["dwp"] for step in found["steps"]]
    assert found["placed"] is True


def test_without_a_rate_the_status_is_3(start):
    run = start(HASTY, "mute")
    assert run.until_settled() == ["ready", "settled"]
    run.process.terminate()
    status, _, found = run.ended()
    assert status == 3
    assert "reported 0 times" in found["search"]["reason"]


def test_a_program_without_a_ready_line_is_searched_as_usual(start):
    run = start(QUICK, "unready")
    wait_until(
        lambda: (
            run.event()["event"] == "sample"
            and run.path.exists()
            and report(run.path)["search"]["settled"]
        )
    )
    run.process.terminate()
    status, names, _ = run.ended()
    assert (status, names[-1]) == (0, "done")


def test_without_settling_the_program_keeps_its_own_barrier(start):
    run = start(ENDLESS, policy="uniform_all", opens=False)
    assert run.event()["event"] == "ready"
    assert run.ended()[1] == ["done"]


def test_the_kernels_moves_end_before_it_has_settled(start):
    run = start("placement_search.OBSERVATION_INTERVAL_SECONDS = 0.05", policy="autonuma")
    assert "sample" in run.until_settled()  # it runs
    found = report(run.path)["settling"]
    assert found["settled"] is True
    assert found["seconds"] >= 3 * 0.05


def at_rest(monkeypatch, shares):
    """What becomes of pages whose shares on node 0 are these, a second apart, and then the last."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(placement_search, "time", SimpleNamespace(monotonic=lambda: clock.now))
    left = list(shares)

    def let_program_run(seconds: float) -> bool:
        clock.now += seconds
        return True

    def look() -> dict[int, float]:
        share = left.pop(0) if len(left) > 1 else left[0]
        return {0: share, 1: 1.0 - share}

    found = AutonumaSettling()
    found.wait_until_pages_rest(let_program_run, look)
    return found


@pytest.mark.parametrize(
    ("shares", "seconds", "settled"),
    [
        ([0.5], 3.0, True),
        ([0.5, 0.506, 0.5, 0.498], 3.0, True),
        ([0.5 + 0.004 * n for n in range(30)], 20.0, False),  # each look alone would pass
        ([0.2, 0.5, 0.7, 0.8], 6.0, True),
    ],
)
def test_pages_are_at_rest_after_three_seconds_without_a_move(
    monkeypatch, shares, seconds, settled
):
    assert at_rest(monkeypatch, shares) == AutonumaSettling(seconds, settled)

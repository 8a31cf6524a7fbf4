"""A program that knows nothing of this project, run by chaosity-place as in a benchmark file."""

from __future__ import annotations

import sys

import pytest

from chaosity.records.record_format import FAILED, VALID
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.runner.point_measurement import measure_point
from small_load import WITHOUT_PROGRESS

pytestmark = pytest.mark.alone

# It waits, keeps 40 MiB for some seconds, then prints a text and ends with a status.
PROGRAM = """
import sys, time
time.sleep(float(sys.argv[4]))
keep = b"x" * (40 << 20)
time.sleep(float(sys.argv[3]))
print(sys.argv[1])
if sys.argv[2] != "0": print("no such matrix", file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""
PRINTED = {"regex": r"^speed (\S+) MB/s", "scale": 1e6, "at_most": None}


@pytest.fixture
def measure(make_point):
    """Measure the program; returns its record."""

    def run(
        said="speed 4.5 MB/s",
        status="0",
        seconds="0.8",
        waits="0",
        source=PRINTED,
        command=(sys.executable,),
        **load,
    ):
        [base] = make_point()["loads"]
        place = ["chaosity-place", "--policy=first_touch", "--workers=0", "--report=place.json"]
        place += [f"--cpus={base['placement']['cpus']}", "--"]
        load = {
            **WITHOUT_PROGRESS,
            "command": [*place, *command, "-c", PROGRAM, said, status, seconds, waits],
            "metrics": {"elements_per_second": source},
            "placement": {**base["placement"], "launcher": True},
            **load,
        }
        return measure_point(make_point(**load), 1)

    return run


def speed(record):
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    [(value, _)] = metric_values_or_reasons(record)["memory"].values()
    return value


def test_speed_is_read_from_what_the_program_prints(measure):
    record = measure()
    assert speed(record) == 4.5e6
    seen = record["loads"][0]["placement_seen"]
    assert 40 << 20 < sum(seen["memory_bytes_by_node"].values()) < 52 << 20


def test_pages_that_a_program_takes_late_are_seen(measure):
    record = measure(seconds="0.6", waits="1.1", memory_bytes=40 << 20)
    assert speed(record) == 4.5e6


def test_speed_is_a_stated_amount_of_work_per_second_of_the_run(measure):
    source = {"in": "place.json", "json": "program_seconds", "amount": 1000, "at_most": None}
    record = measure(said="", source=source)
    [load] = record["loads"]
    seconds = load["ended_monotonic_seconds"] - load["began_monotonic_seconds"]
    assert 0.8 < 1000 / speed(record) < seconds


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"said": "4.5"}, r"no line of the output matches '^speed (\\S+) MB/s'"),
        ({"said": "speed 0 MB/s"}, "0.0 is not a possible value"),
        ({"status": "3"}, "exit status 3: no such matrix"),
        (
            {"command": ["/opt/no/solver"]},
            "/opt/no/solver: the command is not an executable program",
        ),
        (
            {"needs": {"program": "/opt/no/solver", "install": "install the solver"}},
            "/opt/no/solver is not installed; install the solver",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(measure, wrong, sentence):
    verdict = measure(**{"seconds": "0.3", **wrong})["verdict"]
    assert verdict["status"] == FAILED
    assert sentence in verdict["reason"]
    assert "\n" not in verdict["reason"]

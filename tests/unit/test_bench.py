"""The command line of `make bench`; what it measures is no test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
# Each part says its name and number of pairs instead of measuring.
PLAYED = """
import run
for parts in (run.PARTS, run.NAMED):
    parts.update({part: lambda pairs, part=part: [f"{part} {pairs}"] for part in parts})
run.main()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given, expected",
    [
        (
            [],
            [
                "kernels 9",
                "latency 9",
                "peers 9",
                "working_sets 9",
                "traffic 9",
                "streaming 9",
                "repeat 9",
                "points 9",
                "fio 9",
                "planning 9",
                "coverage 9",
                "simulated_coverage 9",
                "mode_crossovers 9",
                "checks 9",
                "checks_of_fleets 9",
                "history 9",
                "faults 9",
                "planted_faults 9",
                "healthy_machines 9",
                "false_alarms_and_recall 9",
                "half_width_links 9",
                "budgets 9",
                "predicted_drive_sets 9",
                "fitted_machines 9",
                "predicted_loads 9",
                "scale 9",
                "fleet 9",
                "fleet_page 9",
            ],
        ),
        (["faults", "kernels", "--pairs=3"], ["faults 3", "kernels 3"]),
        (["scale_large"], ["scale_large 9"]),
    ],
)
def test_all_parts_run_unless_some_are_named(given, expected):
    ran = subprocess.run(
        [sys.executable, "-c", PLAYED, *given], cwd=BENCH, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert [one.strip() for one in ran.stdout.splitlines() if one.startswith("  ")] == expected


def test_a_part_that_is_not_there_is_refused_with_those_that_are():
    ran = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "kernel"], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "'kernel' is not one of" in ran.stderr and "'kernels'" in ran.stderr

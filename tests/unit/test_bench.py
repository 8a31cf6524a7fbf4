"""The command line of `make bench`; what it measures is no test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
# Each part says its name and number of pairs instead of measuring.
PLAYED = """
import run
for parts in (run.PARTS, run.ONLY_IF_NAMED):
    parts.update({part: lambda pairs, part=part: [f"{part} {pairs}"] for part in parts})
run.main()
"""


def played(*given: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PLAYED, *given], cwd=BENCH, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return [one.strip() for one in ran.stdout.splitlines() if one.startswith("  ")]


@pytest.mark.thorough
def test_parts_that_take_an_hour_run_only_if_they_are_named() -> None:
    every = played()
    assert {"kernels 9", "scale 9"} <= set(every) and "scale_large 9" not in every
    assert played("scale_large", "kernels", "--pairs=3") == ["scale_large 3", "kernels 3"]


def test_a_part_that_is_not_there_is_refused_with_those_that_are() -> None:
    ran = subprocess.run(
        [sys.executable, BENCH / "run.py", "kernel"], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "'kernel' is not one of" in ran.stderr and "'kernels'" in ran.stderr

"""The command line of `make bench`; what it measures is no test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
# Each part says its name and number of pairs instead of measuring.
PLAYED = """
import sys, run
for parts in (run.PARTS, run.ONLY_IF_NAMED):
    parts.update({part: lambda pairs, part=part: [f"{part} {pairs}"] for part in parts})
for line in sys.argv[1:]:
    print(f"= {line}")
    run.main([*line.split(), "--print-only"], standalone_mode=False)
"""


def test_parts_that_take_an_hour_run_only_if_they_are_named_and_unknown_ones_are_refused() -> None:
    lines = ["", "scale_large kernels --pairs=3", "kernel"]
    ran = subprocess.run(
        [sys.executable, "-c", PLAYED, *lines], cwd=BENCH, capture_output=True, text=True
    )
    _, every, named, refused = (
        [line.strip() for line in text.splitlines() if line.startswith("  ")]
        for text in ran.stdout.split("= ")
    )
    assert {"kernels 9", "scale 9"} <= set(every) and "scale_large 9" not in every
    assert named == ["scale_large 3", "kernels 3"]
    assert ran.returncode != 0 and refused == []
    assert "'kernel' is not one of" in ran.stderr and "'kernels'" in ran.stderr


def test_the_pages_of_results_are_those_of_the_kept_results() -> None:
    from validation_page import PAGE, RESULTS, SECTIONS, page_text

    assert PAGE.read_text() == page_text(), "run python bench/validation_page.py"
    shown = {part for parts in SECTIONS.values() for part in parts}
    assert {path.stem for path in RESULTS.glob("*.json")} <= shown

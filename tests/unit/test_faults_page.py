"""docs/reference/faults.md and the tests of faults name each other."""

from __future__ import annotations

import re

from compiler_cache import ROOT

FAULTS = ROOT / "tests/run_faults"
PAGE = (ROOT / "docs/reference/faults.md").read_text()
TEST = r"`([^`]+)\.py::(\w+)`"
ROWS = re.findall(rf"^\| [^|]+ \| {TEST} \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)


def test_each_row_names_a_test_that_exists():
    lines = [line for line in PAGE.splitlines() if "::" in line]
    assert len(ROWS) == len(lines)
    assert len(ROWS) > 40
    for file, name in ROWS:
        text = (FAULTS / f"{file}.py").read_text()
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), (file, name)


def test_each_test_of_a_fault_has_a_row():
    defined = {
        (path.stem, name)
        for path in FAULTS.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert defined - set(ROWS) == set()

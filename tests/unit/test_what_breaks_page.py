"""docs/reference/what-breaks.md names the tests of faults, and only tests that exist."""

from __future__ import annotations

import re

from compiler_cache import ROOT

TESTS = ROOT / "tests"
PAGE = (ROOT / "docs/reference/what-breaks.md").read_text()
ROWS = re.findall(r"^\| [^|]+ \| [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)[1:]


def test_each_row_names_files_of_tests_and_each_such_file_has_a_row() -> None:
    assert all("`" in row for row in ROWS)
    assert len(ROWS) > 20
    named = {TESTS / name for row in ROWS for name in re.findall(r"`([^`]+)`", row)}
    assert {path for path in named if not path.is_file()} == set()
    assert set((TESTS / "run_faults").glob("test_*.py")) <= named

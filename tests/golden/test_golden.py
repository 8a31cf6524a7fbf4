"""Each transcript is what its commands print; `make golden` writes all transcripts anew."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from transcripts import run_transcript

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
WRITE = "CHAOSITY_WRITE_GOLDEN" in os.environ


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRANSCRIPTS])
def test_commands_print_what_the_transcript_says(path: Path, tmp_path: Path) -> None:
    expected = path.read_text()
    found = run_transcript(expected, tmp_path)
    if WRITE:
        path.write_text(found)
    elif found != expected:
        lines = (expected.splitlines(), found.splitlines())
        difference = "\n".join(difflib.unified_diff(*lines, "expected", "found", lineterm="", n=2))
        pytest.fail(f"{difference}\nIf this is right: make golden", pytrace=False)

"""A test that is skipped unseen fails, and the reasons that are expected are listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from expected_skips import is_expected

SKIPS = """
import pytest

def test_of_data():
    pytest.skip("../data is not here")

@pytest.mark.parametrize("file", [])
def test_of_files(file):
    pass

@pytest.mark.skipif(True, reason="only root mounts")
def test_of_root():
    pass

@pytest.mark.xfail(reason="is known")
def test_of_a_fault():
    assert False
"""


def test_a_skip_that_is_not_listed_fails(root: Path, tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "expected_skips", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "tests/support")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 skipped, 1 xfailed, 1 error" in done.stdout, done.stdout
    assert "not in tests/support/expected_skips.py: ../data is not here" in done.stdout


@pytest.mark.parametrize(
    "reason",
    ["fio is not installed", "this machine has no OpenCL device", "no compiler for AArch64"],
)
def test_what_make_test_installs_is_no_reason(reason: str) -> None:
    assert not is_expected(reason)

"""The reasons for which a test may be skipped; a test that is skipped for another reason fails.

They are what a machine, its kernel or its user lacks. That data are missing, or a tool that
`make test` installs, is no such reason: such tests would be skipped unseen.
"""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

# Regular expressions of whole reasons.
EXPECTED = (
    # The user is not root, or root has not all rights here.
    *("only root .*", "(.* )?needs? root( .*)?"),
    "root makes a file that another user may not read",
    *("mounting is not allowed here", "no loop device is available: .*"),
    "this user may not make a cgroup with a memory limit",
    *("this sandbox does not let root become somebody else", "sudo lets anybody in here"),
    "another user may not run what these tests build",
    "other users may not start the Python of this environment",
    # The kernel lacks something, or has it in another state.
    *("this kernel has no .*", "this kernel does not know .*", "this kernel gave no .*"),
    *("anybody may count here", "the kernel prints the present clock, not the TSC's, .*"),
    "the thread sanitizer cannot run here",
    "this machine has the page reserved",
    ".*(io_uring|O_DIRECT).*",
    # The machine is small, or of another kind.
    *("one unit: nowhere to stray to", "this machine (has|gives the tests) one .*"),
    "this machine has no cpuset .*",
    "fewer than 6 GiB of memory are available",
    "no CPU of this machine has an idle state with an exit latency",
    *("here AArch64 is not emulated", "other tests run these loops here", "not x86-64"),
    *(
        "built for what valgrind knows",
        "the registers of x86-64",
        "x86-64 has a set valgrind lacks",
    ),
    *(".* is not offered on .*", "no non-temporal stores on .*"),
    "likwid-bench is not packaged for this machine",
    "the time of this run is over",
    # What its administrator installed.
    "the role slurm .*",
    *("this machine runs systemd(, or lacks systemd-analyze)?", "this machine has Slurm"),
    *("no Chromium is installed", "/.* exists"),
)


def is_expected(reason: str) -> bool:
    """Return whether a test may be skipped for this reason."""
    return any(re.fullmatch(pattern, reason, re.DOTALL) for pattern in EXPECTED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that was skipped for an unexpected reason."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not is_expected(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped for a reason that is not in tests/support/expected_skips.py: {reason}"
            )
    return report

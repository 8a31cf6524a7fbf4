"""Runs tests again and again: each run is a fork of this process, which imports libraries once.

Reads a line of JSON for each run, `{"tests": [...], "processor_seconds": 60, "variables": {...}}`,
and answers with a line: the outcome, and the test that failed first. Chaosity itself is imported in
the fork, so a run sees the source as it is then.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

MEMORY = 6 << 30


class ChosenTests:
    """Keeps the chosen tests of the collected ones, in their order, and notes which fail."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}
        self.ran = 0
        self.failed: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the chosen tests only. A mutation may change the name of one, which is not run."""
        chosen = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(chosen, key=lambda item: self.order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failed.append(f"import of {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails."""
        self.ran += report.when == "call"
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def libraries() -> list[str]:
    """Return the names of the modules of this process that are none of the repository."""
    own = (str(Path.cwd() / "workflow"), str(Path.cwd() / "tests"), str(Path.cwd() / "roles"))
    files = [(name, getattr(module, "__file__", None)) for name, module in sys.modules.items()]
    return [name for name, file in files if file and not file.startswith(own)]


def import_libraries(names: list[str]) -> None:
    """Import what a run has imported, for the next runs."""
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()


def run_here(order: dict[str, Any], answer: Path) -> None:
    """Run the tests in this process, which is a fork and ends."""
    os.setsid()
    output = os.open(answer.with_suffix(".output"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["variables"])
    seconds = int(order["processor_seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    chosen = ChosenTests(order["tests"])
    files = list(dict.fromkeys(test.partition("::")[0] for test in order["tests"]))
    files = [file for file in files if Path(file).exists()]
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", *order["options"]]
    code = int(pytest.main([*files, *options], plugins=[chosen])) if files else 5
    if code not in (0, 5) and not chosen.failed:
        chosen.failed.append("start of pytest")
    new = answer.with_suffix(".new")
    said = {"failed": chosen.failed, "ran": chosen.ran, "libraries": libraries()}
    new.write_text(json.dumps(said))
    new.rename(answer)


def run(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the tests in a fork and return what failed."""
    answer = folder / f"{os.getpid()}.json"
    answer.unlink(missing_ok=True)
    if not (child := os.fork()):
        try:
            run_here(order, answer)
        finally:
            os._exit(0)
    until = time.monotonic() + order["seconds"]
    ended = 0
    while not ended and time.monotonic() < until:
        ended, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    # Ends a test that hangs, and programs that it left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    if not answer.exists():
        return {"failed": ["no end"], "ran": 0}
    read: dict[str, Any] = json.loads(answer.read_text())
    return read


def main() -> None:
    """Answer the orders on standard input; the argument is a folder for files of the runs."""
    for line in sys.stdin:
        answer = run(json.loads(line), Path(sys.argv[1]))
        print(json.dumps(answer), flush=True)
        import_libraries(answer.get("libraries", []))
    os._exit(0)  # without words of libraries about what they leave


if __name__ == "__main__":
    main()

"""Programs of the project on results that a test breaks, and what must be true of records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inventories import simulated_host
from published_schemas import schema_errors
from wait_until_true import files_of_running_program
from workflow_folder import Workflow

SIMULATED_HOST = simulated_host("xeon_8358")
BIN = Path(sys.executable).parent


ENVIRONMENT = {
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
}


def run_program(
    *words: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 500,
) -> subprocess.CompletedProcess[str]:
    """Run a program, first of this installation; stdout contains its output and errors."""
    return subprocess.run(
        words,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=timeout,
        env={**os.environ, **ENVIRONMENT, **(environment or {})},
    )


def start_program(*words: str | Path, folder: Path | None = None) -> subprocess.Popen[str]:
    """Start a program in a process group of its own; stdout contains its output and errors."""
    return subprocess.Popen(
        words,
        cwd=folder,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **ENVIRONMENT},
    )


def chaosity(*words: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of ``chaosity``."""
    return run_program("chaosity", *words, folder=folder)


def simulate_records(workflow: Workflow) -> None:
    """Write the records of the workflow's simulated hosts, much quicker than it runs."""
    workflow.command()  # writes the config
    done = chaosity("simulate", "--config", "test.yaml", folder=workflow.folder)
    assert done.returncode == 0, done.stdout


def record_files(results: Path) -> dict[Path, bytes]:
    """The current records below ``results`` with their bytes; each is a complete record."""
    found = files_of_running_program(results, "*/*/*/*/rep*.json")
    content = {path: path.read_bytes() for path in found}
    for text in content.values():
        assert schema_errors(json.loads(text), "record") == []
    return content


def start(workflow: Workflow, *arguments: str) -> subprocess.Popen[str]:
    """Start Snakemake in a process group of its own; stdout contains its output and errors."""
    return start_program(*workflow.command(*arguments), folder=workflow.folder)


def kill_all(run: subprocess.Popen[str]) -> None:
    """Kill a run with all its processes, as a machine does that loses its power."""
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


class ResultsFolder:
    """``results`` with the records of one host in one configuration."""

    def __init__(self, folder: Path) -> None:
        self.results = folder
        [plan] = folder.glob("*/*/plan.json")
        self.folder = plan.parent

    @property
    def points(self) -> list[Path]:
        """The files of the planned points."""
        return sorted(self.folder.glob("points/*/*.json"))

    def record(self, point: Path) -> Path:
        """The file of the first record of a point."""
        return self.folder / point.parent.name / point.stem / "rep1.json"

    def measure(self, point: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Measure a point, as the workflow does."""
        words: list[str | Path] = [self.folder.parent / "host.json", point]
        words += ["--record", self.record(point)]
        return run_program("chaosity-measure", *words, environment=environment)

    def write(self, name: str) -> subprocess.CompletedProcess[str]:
        """Write the files of a stage after the measurements: tidy, anomalies, report or export."""
        plan, table = self.folder / "plan.json", self.folder / "measurements.parquet"
        history, report = self.folder / "history.parquet", self.folder / "report.html"
        words: dict[str, list[Any]] = {
            "tidy": [plan, "--output", table, "--history", history],
            "report": [plan, "--output", report],
            "export": ["all", self.folder, "--output", self.folder / "exports"],
        }
        return chaosity(name, *words[name])

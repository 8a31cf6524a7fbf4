"""The wall clock jumps during a run: times of records are monotonic, and eras stay in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broken_runs import ResultsFolder, chaosity, record_files
from chaosity.components import read_component_histories, write_changed_components
from chaosity.records.record_format import VALID, Record
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import read_parquet_table

DAY = 86_400
# A wall clock with an offset, in seconds, from a file. libfaketime (0.9.10) does the same, but with
# it every time.sleep() of Python 3.11 and later fails.
WALL_CLOCK = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (clock != CLOCK_REALTIME || status) return status;
    char text[32] = {0};
    int file = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
    close(file);
    return status;
}
"""


@pytest.fixture
def wall_clock(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """Sets the offset, in seconds, and returns the environment of a process with this clock."""
    library, offset = tmp_path / "wall_clock.so", tmp_path / "offset"
    command = ["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"]
    subprocess.run(command, input=WALL_CLOCK, text=True, check=True)

    def set_clock(seconds: int) -> dict[str, str]:
        offset.write_text(str(seconds))
        return {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(offset)}

    return set_clock


@pytest.mark.alone
@pytest.mark.parametrize("step", [DAY, -DAY])
def test_the_clock_is_set_while_a_point_is_measured(
    make_point: Callable[..., Any],
    wall_clock: Callable[[int], dict[str, str]],
    tmp_path: Path,
    step: int,
):
    record, environment = tmp_path / "rep1.json", wall_clock(0)
    stopping = {"relative_precision": None, "min_seconds": 0.5, "max_seconds": 0.5}
    # The load itself sets the clock, so the step is between the first sample and the last.
    load = make_point(point={"stopping": stopping})
    step_clock = f"open({environment['WALL_CLOCK_OFFSET']!r}, 'w').write('{step}')"
    program = load["loads"][0]["command"][2].replace(
        "while not stop", f"time.sleep(0.2); {step_clock}\nwhile not stop"
    )
    load["loads"][0]["command"][2] = program
    (tmp_path / "point.json").write_text(json.dumps(load))
    done = subprocess.run(
        [sys.executable, "-m", "chaosity.runner", tmp_path / "point.json", "--record", record],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Record = json.loads(record.read_text())
    assert found["verdict"]["status"] == VALID, found["verdict"]["reason"]
    [note] = [check for check in found["verdict"]["checks"] if check["name"] == "wall clock"]
    assert note["passed"] is False
    moved = float(note["detail"].split()[2])
    assert moved == pytest.approx(1000 * DAY, rel=0.01)  # ms
    [run] = found["loads"]
    assert 0.5 <= run["ended_monotonic_seconds"] - run["began_monotonic_seconds"] < 30
    rate, _ = metric_values_or_reasons(found)["memory"]["bandwidth_bytes_per_second"]
    assert isinstance(rate, float)
    assert 1e5 < rate < 1e6  # as without a step: a byte in each microsecond of a sample


def test_a_record_from_a_future_time_stays_in_the_era_in_which_it_was_written(
    results: ResultsFolder, wall_clock: Callable[[int], dict[str, str]]
):
    """The host's clock is a day ahead during one measurement; then a component is replaced."""
    point, components = results.points[0], results.folder / "components"
    done = results.measure(point, **wall_clock(DAY))
    assert done.returncode == 0, done.stdout
    ahead = json.loads(results.record(point).read_text())
    document = json.loads((components / "system.json").read_text())
    (components / "system.json").write_text(json.dumps({**document, "note": "replaced"}))
    write_changed_components(components, all_documents(components))
    done = results.measure(point)
    assert done.returncode == 0, done.stdout
    after = json.loads(results.record(point).read_text())
    assert after["finished_at"] < ahead["finished_at"]  # what the two clocks say
    assert results.write("tidy").returncode == 0
    history = read_parquet_table(results.folder / "history.parquet", HISTORY_COLUMNS)
    eras = history[history["point"] == point.stem].groupby("era")["measured_at"].max()
    assert list(eras) == [ahead["finished_at"], after["finished_at"]]
    assert len(record_files(results.results)) == len(results.points)
    assert chaosity("explain", results.folder, point.stem).returncode == 0


def all_documents(components: Path) -> dict[str, Any]:
    """What discovery finds again: every component as it is on the disk."""
    return {path.stem: json.loads(path.read_text()) for path in components.glob("[!.]*.json")}


def test_a_component_from_a_future_time_does_not_ask_for_measurements_in_every_run(tmp_path: Path):
    """The controller's clock was a day ahead during discovery, and was then set right."""
    components, documents = tmp_path / "components", {"system": {"board": "B"}}
    write_changed_components(components, documents)  # type: ignore[arg-type]
    path = components / "system.json"
    future = path.stat().st_mtime + DAY
    os.utime(path, (future, future))
    history = components / ".history/system.jsonl"
    [state] = [json.loads(line) for line in history.read_text().splitlines()]
    state["since"] = "2999-01-01T00:00:00.000Z"
    history.write_text(json.dumps(state) + "\n")
    write_changed_components(components, documents)  # type: ignore[arg-type]
    record = tmp_path / "rep1.json"
    record.touch()
    assert path.stat().st_mtime <= record.stat().st_mtime  # what Snakemake compares
    [now] = read_component_histories(components)["system"]
    assert now.since < "2999"

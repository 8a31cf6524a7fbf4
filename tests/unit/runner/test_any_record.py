"""Any output of a tool, and any record, plan or note in results, gives a value or one sentence."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chaosity.campaign.measured_page_weights import MeasuredPageWeights
from chaosity.cli import chaosity
from chaosity.design.benchmark_templates import LoadMaker
from chaosity.documents.shipped_documents import ROOT, load_benchmark
from chaosity.errors import UserError
from chaosity.place.placement_search import SampleSource
from chaosity.report.measured_run import read_record_summaries, unmet_note_sentences
from chaosity.result_folders import read_skipped_host
from chaosity.rounds.budget import Round, read_round_choice, write_round_choice
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.runner.record_checks import check_output_rules, check_record
from chaosity.runner.tool_output import ExtractionError, extract_number
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import build_tidy_table
from strategies import (
    Draw,
    change_document,
    change_text,
    changed,
    changed_json,
    check_any_input,
    simulated_records,
    write_text,
)

RECORDED = ROOT / "tests/data/recorded"
# Benchmark -> the name that its tool gives an output, and a file with it.
OUTPUTS = {
    "fio_sequential_read": {
        "result.json": "fio-3.33_two_drives.json",
        "rate_bw.1.log": "fio-3.33_rate_bw.1.log",
    },
    "fio_random_read": {
        "result.json": "fio-3.33_random_two_drives.json",
        "rate_iops.1.log": "fio-3.33_rate_iops.1.log",
    },
    "likwid_bench": {"stdout": "likwid-bench-5.2_stream.txt"},
    "stream": {"stdout": "stream-like.txt"},
    "clpeak": {
        "result.xml": "clpeak-1.1.2_global.xml",
        "stdout": "clpeak-1.1.2_global.txt",
    },
    "nvbandwidth": {"stdout": "nvbandwidth-0.8.json"},
}
RUNS = [
    (name, {output: (RECORDED / file).read_text() for output, file in files.items()})
    for name, files in OUTPUTS.items()
]
DEVICE = dict.fromkeys(("name", "platform", "device", "type", "vendor", "uuid"), "x")
CONTEXT: Any = {
    "initiator": {"cpus": "0-1", "threads": 2, "nodes": "0", "memory_nodes": "0"},
    "target": {"nodes": "0", "page_nodes": "0", "drives": [], "count": 2, "device": DEVICE},
    **{"kernel": "triad", "kernel_name": "triad", "arrays": 3, "array_bytes": 10**8},
    **{"memory_peak_bytes_per_second": None, "host": {"cpu_flags": ["avx512f"]}},
    **{"timeout_seconds": 10, "relative_precision": None, "min_seconds": 1, "max_seconds": 1},
}
ROUND = {"reason": "r", "measurements": [["e", "p"]], "audit": [], "earlier": False}
CHOICE = {"rounds": [ROUND], "is_last": False}
SKIPPED = {"host": "a", "at": "2026-11-21T03:30:00Z", "reason": "x"}
WEIGHTS = {"0-1": {"shares": {"0": 0.5, "1": 0.5}, "source": "x", "since": "2026"}}
SAMPLES = '{"event":"sample","begin_ns":1000,"end_ns":2000,"bytes":300}\n' * 3


def change_output(draw: Draw, text: str) -> str:
    """Change the JSON of an output, of all lines or of one, or its text."""
    lines = text.splitlines() or [""]
    at = draw(st.integers(0, len(lines) - 1))
    for part, whole in (
        (text, "{}"),
        (lines[at], "\n".join([*lines[:at], "{}", *lines[at + 1 :]])),
    ):
        if part.lstrip().startswith("{") and draw(st.integers(0, 2)):
            with contextlib.suppress(ValueError):
                new = json.dumps(change_document(draw, json.loads(part)))
                return whole.replace("{}", new, 1)
    return change_text(draw, text)


def change_load(draw: Draw, record: Any) -> Any:
    """Change a raw output of a load of a record."""
    record = json.loads(json.dumps(record))
    outputs = draw(st.sampled_from(record["loads"]))["outputs"]
    name = draw(st.sampled_from(sorted(outputs)))
    outputs[name] = change_output(draw, outputs[name])
    return record


def change_run(draw: Draw, run: tuple[str, dict[str, str]]) -> tuple[str, dict[str, str]]:
    """Change an output of a recorded run."""
    name = draw(st.sampled_from(sorted(run[1])))
    return run[0], {**run[1], name: change_output(draw, run[1][name])}


def parse_outputs(record: Any, _folder: Path) -> None:
    for load in record["loads"]:
        check_output_rules(load)
    check_record(record)
    for readings in metric_values_or_reasons(record).values():
        for value, reason in readings.values():
            assert isinstance(value, float | int | dict) or (value is None and reason)


def parse_recorded(run: tuple[str, dict[str, str]], _folder: Path) -> None:
    load = LoadMaker(load_benchmark(run[0]), {}).make_load("memory", CONTEXT)
    outputs = {"stdout": "", "stderr": "", **run[1]}
    check_output_rules({**load, "outputs": outputs})
    for source in load["metrics"].values():
        if "counter" not in source and not source.get("progress"):
            with contextlib.suppress(ExtractionError):
                assert isinstance(extract_number(source, outputs), float)


@st.composite
def records_of_points(draw: Draw) -> tuple[Any, str]:
    """Return a point, and any text in place of its record."""
    record = draw(st.sampled_from(simulated_records()))
    return record["point"], draw(changed_json([record]))


def parse_record(given: tuple[Any, str], folder: Path) -> None:
    """Read a record as `tidy`, `report` and `explain` do."""
    point, text = given
    experiment, name = point["experiment"], point["point"]
    write_text(folder / "points" / experiment / f"{name}.json", json.dumps(point))
    path = write_text(folder / experiment / name / "rep1.json", text)
    Measurements.from_table(build_tidy_table(folder / "points", folder)).performance_rows()
    list(unmet_note_sentences(read_record_summaries([path])))
    arguments = [str(folder), name, "--experiment", experiment, "--samples"]
    with contextlib.redirect_stdout(io.StringIO()):
        chaosity.main(["explain", *arguments], standalone_mode=False)


@st.composite
def points_of_records(draw: Draw) -> tuple[Any, str]:
    """Return a record, and a changed document in place of its point."""
    record = draw(st.sampled_from(simulated_records()))
    return record, json.dumps(draw(changed([record["point"]], change_document)))


def parse_point(given: tuple[Any, str], folder: Path) -> None:
    record, text = given
    experiment, name = record["point"]["experiment"], record["point"]["point"]
    write_text(folder / "points" / experiment / f"{name}.json", text)
    write_text(folder / experiment / name / "rep1.json", json.dumps(record))
    build_tidy_table(folder / "points", folder)


def parse_choice(text: str, folder: Path) -> None:
    path = folder / "rounds/1.json"
    write_text(path, text)
    choice = read_round_choice(path)
    write_round_choice(path, choice)
    assert all(isinstance(each, Round) for each in choice.rounds)


def parse_skipped(text: str, folder: Path) -> None:
    write_text(folder / "left_out.json", text)
    skipped = read_skipped_host(folder)
    assert skipped is not None
    assert isinstance(skipped.skip_time_and_reason, str)


def parse_weights(text: str, folder: Path) -> None:
    write_text(folder / "weights.json", text)
    weights = MeasuredPageWeights(folder, recalculate=False)
    weights("canonical", [0, 1])
    weights.write_weights()


def parse_progress(text: str, _folder: Path) -> None:
    source = SampleSource()
    for line in text.splitlines():
        source.read_line(line, 1.0)


# Name -> its inputs, its parser and its share of the examples.
CASES: dict[
    str, tuple[Callable[[], st.SearchStrategy[Any]], Callable[[Any, Path], None], float]
] = {
    "output in records": (lambda: changed(simulated_records(), change_load), parse_outputs, 0.15),
    "recorded output": (lambda: changed(RUNS, change_run), parse_recorded, 0.25),
    "record": (records_of_points, parse_record, 0.07),
    "point": (points_of_records, parse_point, 0.15),
    "rounds/1.json": (lambda: changed_json([CHOICE]), parse_choice, 0.25),
    "left_out.json": (lambda: changed_json([SKIPPED]), parse_skipped, 0.25),
    "weights.json": (
        lambda: changed_json([{"weights": {"canonical": WEIGHTS}}]),
        parse_weights,
        0.25,
    ),
    "progress lines": (lambda: changed([SAMPLES], change_text), parse_progress, 0.25),
}
# What a caller turns into a failed point. The note of a skipped host and a line of a program are
# never refused.
REFUSALS: dict[str, tuple[type[Exception], ...]] = {
    "output in records": (UserError, ExtractionError),
    "recorded output": (UserError, ExtractionError),
    "left_out.json": (),
    "progress lines": (),
}


@pytest.mark.parametrize("name", CASES)
def test_any_input_gives_a_value_or_one_sentence(name: str, tmp_path: Path) -> None:
    inputs, parse, share = CASES[name]
    refusals: tuple[type[Exception], ...] = REFUSALS.get(name, (UserError,))
    check_any_input(inputs(), parse, tmp_path, share, refusals)

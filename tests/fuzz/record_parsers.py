"""Parsers of measurements: outputs of tools, records, plans and rounds."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import random
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from chaosity.benchmarks.benchmark_templates import Benchmark
from chaosity.checked_yaml_files import EXPERIMENTS, ROOT, load_benchmark, read_config
from chaosity.cli.explain import explain_value_command
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.place.program_rate import SampleSource
from chaosity.report.record_summaries import read_record_summaries, tool_note_sentences
from chaosity.rounds.round_types import Round, read_rounds, write_rounds
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.runner.parse_tool_output import ExtractionError, extract_number
from chaosity.runner.record_checks import check_output_rules, check_record
from chaosity.simulation.machine_description import read_machine_description
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_records import simulate_replicate
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.topology_discovery import discover_topology
from chaosity.transport.skipped_hosts import read_skipped_host
from fuzz.mutations import change_document, change_text, json_text_of, mutated, mutated_json
from fuzz.watched_parser import Parser

RECORDED = ROOT / "tests" / "data" / "recorded"
# Benchmark file -> recorded output of its tool, as the name that the tool gives it -> file.
RECORDED_OUTPUTS = {
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
    "clpeak": {"result.xml": "clpeak-1.1.2_global.xml", "stdout": "clpeak-1.1.2_global.txt"},
    "clpeak_transfer": {
        "result.xml": "clpeak-1.1.2_transfer.xml",
        "stdout": "clpeak-1.1.2_transfer.txt",
    },
    "nvbandwidth": {"stdout": "nvbandwidth-0.8.json"},
}


@functools.cache
def records() -> list[Any]:
    """Return simulated records of every experiment: their raw outputs are like those of tools."""
    topology = discover_topology(str(ROOT / "machines" / "topologies" / "epyc_7413_nps4.xml"))
    machine = read_machine_description(ROOT / "machines" / "epyc_7413_nps4.yaml", topology)
    model = MachineModel(machine, topology, "host", date(2026, 1, 1))
    names = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
    config: Any = {**read_config(), "experiments": names, "replicates": 1}
    config["sample"] = dict.fromkeys(names, 1)
    variables: Any = {"chaosity_simulated": "epyc_7413_nps4"}
    host = PlannedHost("host", configuration_name(topology), topology, variables)
    found = [simulate_replicate(point, 1, model) for point in plan_host(host, config).points]
    return [json.loads(json.dumps(record)) for record in found]


def change_outputs(generator: random.Random, record: Any) -> Any:
    """Change the raw output of a tool in a record."""
    record = copy.deepcopy(record)
    load = generator.choice(record["loads"])
    name = generator.choice(sorted(load["outputs"]))
    text = load["outputs"][name]
    lines = text.splitlines()
    at = generator.randrange(len(lines) or 1)
    if lines and lines[at].startswith("{") and generator.randrange(2):
        try:
            lines[at] = json.dumps(change_document(generator, json.loads(lines[at])))
            load["outputs"][name] = "\n".join(lines)
            return record
        except ValueError:
            pass
    if text.startswith("{\n") and generator.randrange(2):
        try:
            load["outputs"][name] = json.dumps(change_document(generator, json.loads(text)))
            return record
        except ValueError:
            pass
    load["outputs"][name] = change_text(generator, text)
    return record


def _parse_outputs(record: Any, _folder: Path) -> None:
    for load in record["loads"]:
        check_output_rules(load)
    check_record(record)
    for load in metric_values_or_reasons(record).values():
        for value, reason in load.values():
            assert isinstance(value, float | int | dict) or (value is None and reason)


@functools.cache
def _recorded_load(benchmark: str) -> Any:
    device = {
        "name": "opencl0",
        "platform": "p",
        "device": "d",
        "type": "cpu",
        "vendor": "v",
        "uuid": "u",
    }
    context: Any = {
        "initiator": {"cpus": "0-1", "threads": 2, "nodes": "0", "memory_nodes": "0"},
        "target": {
            "nodes": "0",
            "page_nodes": "0",
            "drives": [],
            "count": 2,
            "device": device,
            "link_bytes_per_second": None,
        },
        **{"kernel": "triad", "kernel_name": "triad", "arrays": 3, "array_bytes": 10**8},
        **{"memory_peak_bytes_per_second": None, "host": {"cpu_flags": ["avx512f"]}},
        **{"timeout_seconds": 10, "relative_precision": None, "min_seconds": 1, "max_seconds": 1},
    }
    document = load_benchmark(benchmark)
    return Benchmark(document, {}).make_load("memory", context)


def change_recorded(generator: random.Random, run: tuple[str, dict[str, str]]) -> Any:
    """Change one of the recorded outputs of a tool."""
    benchmark, outputs = run
    name = generator.choice(sorted(outputs))
    text = outputs[name]
    if text.lstrip().startswith("{") and generator.randrange(3):
        try:
            text = json.dumps(change_document(generator, json.loads(text)))
        except ValueError:
            text = change_text(generator, text)
    else:
        text = change_text(generator, text)
    return benchmark, {**outputs, name: text}


def _recorded_runs() -> list[tuple[str, dict[str, str]]]:
    return [
        (name, {output: (RECORDED / file).read_text() for output, file in files.items()})
        for name, files in RECORDED_OUTPUTS.items()
    ]


def _parse_recorded(run: tuple[str, dict[str, str]], _folder: Path) -> None:
    load = _recorded_load(run[0])
    outputs = {"stdout": "", "stderr": "", **run[1]}
    check_output_rules({**load, "outputs": outputs})
    for source in load["metrics"].values():
        if "counter" not in source and not source.get("progress"):
            try:
                assert isinstance(extract_number(source, outputs), float)
            except ExtractionError:
                continue


def _write(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _parse_record(text: str, folder: Path) -> None:
    """Read a record of another hand as `tidy`, `report` and `explain` do, beside its good point."""
    experiment, point = _point_of(text)
    _write(folder, [(f"points/{experiment}/{point['point']}.json", json.dumps(point))])
    path = folder / experiment / point["point"] / "rep1.json"
    _write(folder, [(str(path.relative_to(folder)), text)])
    table = build_tidy_table(folder / "points", folder)
    Measurements.from_table(table).performance_rows()
    summaries = read_record_summaries([path])
    list(tool_note_sentences(summaries))
    for summary in summaries:
        assert isinstance(summary.experiment, str)
    arguments = [str(folder), point["point"], "--experiment", experiment, "--samples"]
    with contextlib.redirect_stdout(io.StringIO()):
        explain_value_command.main(arguments, standalone_mode=False)


def _point_of(text: str) -> tuple[str, Any]:
    """Return the experiment and the point of the record that a text was made of, or the first."""
    for record in records():
        if record["point"]["definition"] in text:
            return record["point"]["experiment"], record["point"]
    return records()[0]["point"]["experiment"], records()[0]["point"]


def _parse_point(texts: tuple[str, str], folder: Path) -> None:
    """Make the tidy table of a plan of another hand, with a good record."""
    record = json.loads(texts[1])
    point = record["point"]
    _write(folder, [(f"points/{point['experiment']}/{point['point']}.json", texts[0])])
    _write(folder, [(f"{point['experiment']}/{point['point']}/rep1.json", texts[1])])
    build_tidy_table(folder / "points", folder)


def _point_inputs() -> st.SearchStrategy[tuple[str, str]]:
    def pair(record: Any, seed: int, times: int) -> tuple[str, str]:
        generator, point = random.Random(seed), record["point"]
        for _ in range(times):
            point = change_document(generator, point)
        return json_text_of(point), json.dumps(record)

    return st.builds(pair, st.sampled_from(records()), st.integers(0, 2**32), st.integers(0, 4))


def _parse_rounds(text: str, folder: Path) -> None:
    _write(folder, [("rounds.json", text)])
    rounds = read_rounds(folder)
    write_rounds(folder, rounds)
    assert all(isinstance(each, Round) for each in rounds)


def _parse_skipped(text: str, folder: Path) -> None:
    _write(folder, [("left_out.json", text)])
    skipped = read_skipped_host(folder)
    assert skipped is not None
    assert isinstance(skipped.skip_time_and_reason, str)


def _parse_progress_lines(text: str, _folder: Path) -> None:
    source = SampleSource()
    for line in text.splitlines():
        source.read_line(line, 1.0)


def parsers() -> list[Parser]:
    """Return the parsers of this family."""
    rounds = [{"reason": "r", "measurements": [["e", "p"]], "audit": [], "earlier": False}]
    lines = '{"event":"sample","begin_ns":1000,"end_ns":2000,"bytes":300}\n' * 3
    sentences: tuple[type[Exception], ...] = (ExtractionError,)
    plain: Callable[..., Parser] = Parser
    return [
        plain(
            "outputs of tools and kernels",
            "raw output in records: every benchmark and kernel",
            lambda: mutated(records(), change_outputs),
            _parse_outputs,
            sentences,
            150,
        ),
        plain(
            "recorded outputs",
            "fio, STREAM, likwid-bench, clpeak, nvbandwidth, as they print it",
            lambda: mutated(_recorded_runs(), change_recorded),
            _parse_recorded,
            sentences,
            150,
        ),
        plain(
            "record",
            "rep<N>.json of another hand, for tables, reports and explain",
            lambda: mutated_json(records()),
            _parse_record,
            examples=70,
        ),
        plain("point", "points/*.json of another hand", _point_inputs, _parse_point, examples=100),
        plain(
            "rounds.json",
            "the rounds of a run with a budget",
            lambda: mutated_json([rounds]),
            _parse_rounds,
            examples=100,
        ),
        plain(
            "left_out.json",
            "the note of a skipped host",
            lambda: mutated_json([{"host": "a", "at": "2026-11-21T03:30:00Z", "reason": "x"}]),
            _parse_skipped,
            (),
            100,
        ),
        plain(
            "progress lines",
            "lines of a program that `chaosity place` runs",
            lambda: mutated([lines], change_text),
            _parse_progress_lines,
            (),
            100,
        ),
    ]

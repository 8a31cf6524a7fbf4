"""Recorded output of the real tools, as their benchmark files read it, and events of counters."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from chaosity.design.benchmark_templates import (
    LoadMaker,
    encode_x86_event,
    find_counter_events,
    read_counter_files,
)
from chaosity.design.host_plan import plan_host
from chaosity.documents import shipped_documents as module
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import load_benchmark, yaml_file_names
from chaosity.errors import UserError
from chaosity.runner import metric_values, record_checks
from chaosity.runner.tool_output import ExtractionError, extract_number

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded"
METRIC = "bandwidth_bytes_per_second"


def load(name, **changed):
    """A load of a benchmark file, filled in with values that fit the recorded output."""
    context = {
        "initiator": {
            "cpus": "0-1",
            "threads": changed.get("threads", 2),
            "nodes": "0",
            "memory_nodes": "0",
        },
        "target": {
            "nodes": "0",
            "page_nodes": "0",
            "drives": [],
            "count": 2,
            "link_bytes_per_second": None,
            "device": changed.get("device"),
        },
        "kernel": changed.get("kernel"),
        "kernel_name": "triad",
        "arrays": 3,
        "array_bytes": 100_000_000,
        "memory_peak_bytes_per_second": None,
        "host": {"cpu_flags": ["avx512f"]},
        "timeout_seconds": 10,
        "relative_precision": None,
        "min_seconds": 1,
        "max_seconds": 1,
    }
    return LoadMaker(load_benchmark(name), changed.get("parameters", {})).make_load(
        "memory", context
    )


def checks(one, outputs):
    found = record_checks.check_output_rules({**one, "outputs": {"stderr": "", **outputs}})
    return {check["name"].partition(": ")[2]: check["passed"] for check in found}


def failed_checks(one, outputs):
    return {name for name, passed in checks(one, outputs).items() if not passed}


def recorded(prefix, **files):
    """The outputs of a run: content of each recorded file by the name that the tool gave it."""
    return {name: (RECORDED / f"{prefix}{file}").read_text() for name, file in files.items()}


def of_fio(result, *logs):
    return recorded("fio-3.33_", **{"result.json": result}, **dict(zip(logs, logs, strict=True)))


POCL = {
    "name": "opencl0",
    "type": "cpu",
    "platform": "Portable Computing Language",
    "device": "pthread-skylake-avx512-Intel(R) Xeon(R) Processor",
    "twin": 0,
    "uuid": "0123",
}


def clpeak(kind):
    return recorded(f"clpeak-1.1.2_{kind}.", **{"stdout": "txt", "clpeak.xml": "xml"})


FIO = {"stdout": "", **of_fio("two_drives.json", "rate_bw.1.log", "rate_bw.2.log")}
RANDOM_READS = of_fio("random_two_drives.json", "rate_iops.1.log", "rate_iops.2.log")
STREAM = recorded("", stdout="stream-like.txt")
LIKWID = recorded("likwid-bench-5.2_", stdout="stream.txt")
NVIDIA = recorded("", stdout="nvbandwidth-0.8.json")
# Benchmark, what fills in its file, the outputs, and the values of its metrics.
RUNS = [
    ("fio_sequential_read", {}, FIO, [1203214684.0]),
    ("fio_random_read", {}, RANDOM_READS, [4183.157, 11206656, 92798976]),
    ("likwid_bench", {"kernel": "stream"}, LIKWID, [9086.34e6]),
    ("stream", {"kernel": "Copy"}, STREAM, [50e9]),
    ("stream", {"kernel": "Scale"}, STREAM, [40e9]),
    ("stream", {"kernel": "Add"}, STREAM, [48e9]),
    ("stream", {"kernel": "Triad"}, STREAM, [2.4e9 / 0.051]),
    # The best vector width counts.
    ("clpeak", {"device": POCL, "threads": 1}, clpeak("global"), [4.04915e9]),
    ("clpeak_transfer", {"device": POCL}, clpeak("transfer"), [3.27385e9, 5.81165e9]),
    ("nvbandwidth", {"device": POCL}, NVIDIA, [55.63e9, 55.12e9, 48.5e9, 47.25e9, 1250e9]),
]


@pytest.mark.parametrize(("benchmark", "context", "outputs", "values"), RUNS)
def test_a_run_passes_its_checks_and_gives_its_values(benchmark, context, outputs, values):
    one = load(benchmark, **context)
    assert set(checks(one, outputs).values()) == {True}
    found = [extract_number(source, outputs) for source in one["metrics"].values()]
    assert found == pytest.approx(values)


@pytest.mark.parametrize(
    ("benchmark", "printed", "find", "put", "broken"),
    [
        ("fio_sequential_read", FIO, '"direct": "1"', '"direct": "0"', "O_DIRECT"),
        ("fio_sequential_read", FIO, '"error": 0', '"error": 5', "no error"),
        ("fio_sequential_read", FIO, '"bs": "1048576"', '"bs": "4096"', "block size"),
        (
            *("fio_random_read", RANDOM_READS),
            *('"group_reporting": "1"', '"group_reporting": "0"', "one group of jobs"),
        ),
        ("fio_random_read", RANDOM_READS, '"rw": "randread"', '"rw": "read"', "random reads"),
        ("fio_random_read", RANDOM_READS, '"iodepth": "32"', '"iodepth": "1"', "queue depth"),
        ("fio_random_read", RANDOM_READS, '"numjobs": "1"', '"numjobs": "4"', "jobs"),
        ("fio_random_read", RANDOM_READS, '"error": 0', '"error": 5', "no error"),
        (
            *("stream", STREAM),
            *("Solution Validates", "Solution Does not validate", "result is right"),
        ),
        ("stream", STREAM, "counted = 2", "counted = 1", "threads"),
        ("stream", STREAM, "Array size = 100000000", "Array size = 10000000", "array size"),
        ("stream", STREAM, "executed 100 times", "executed 10 times", "iterations"),
        ("likwid_bench", LIKWID, "(Byte):\t\t299999232", "(Byte):\t\t99999232", "working set"),
        ("clpeak", clpeak("global"), "units   : 1", "units   : 2", "no more threads than units"),
        ("clpeak", clpeak("global"), POCL["device"], "another", "device"),
        ("nvbandwidth", NVIDIA, '"status" : "Passed"', '"status" : "Waived"', "passed"),
        ("nvbandwidth", NVIDIA, "host_to_device_memcpy_ce", "device_local_copy", "first"),
    ],
)
def test_a_tool_that_did_something_else_is_found_out(benchmark, printed, find, put, broken):
    changed = {name: text.replace(find, put) for name, text in printed.items()}
    assert changed != printed
    context = next(own for name, own, *_ in RUNS if name == benchmark)
    assert failed_checks(load(benchmark, **context), changed) == {broken}


def test_another_kernel_and_another_build_are_found_out():
    one = load("likwid_bench", kernel="stream")
    assert "stream_avx512" in one["command"]
    # Its own triad is not STREAM's.
    assert "kernel" in failed_checks(
        one, recorded("likwid-bench-5.2_", stdout="triad_mem_avx512.txt")
    )
    # The real STREAM was compiled with the default, ten iterations.
    one, real = (
        load("stream", kernel="Triad"),
        recorded("stream-5.10_", stdout="gcc12_2threads.txt"),
    )
    assert failed_checks(one, real) == {"iterations"}
    assert extract_number(one["metrics"][METRIC], real) == pytest.approx(2.4e9 / 0.054779)


@pytest.mark.parametrize(
    ("benchmark", "outputs", "rate"),
    [("fio_sequential_read", FIO, 1203214684.0), ("fio_random_read", RANDOM_READS, 4183.157)],
)
def test_the_logs_of_fio_add_up_to_its_rate(benchmark, outputs, rate):
    series = metric_values.progress_series(load(benchmark)["progress"], outputs, 0.0)
    assert len(series) == 2
    both = metric_values.rate_in_window(series, *metric_values.common_time_span(series))
    assert both == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize(
    ("benchmark", "context", "cut"),
    [
        ("fio_sequential_read", {}, {**FIO, "result.json": FIO["result.json"][:200]}),
        ("clpeak", {"device": POCL}, {"stdout": "", "clpeak.xml": "<clpeak></clpeak>"}),
    ],
)
def test_a_run_cut_short_is_no_result(benchmark, context, cut):
    one = load(benchmark, **context)
    assert set(checks(one, cut).values()) == {False}
    with pytest.raises(ExtractionError):
        extract_number(one["metrics"][METRIC], cut)


@pytest.mark.parametrize("kind", ["at_least", "at_most"])
def test_an_output_with_a_number_above_all_floats_fails_its_rule(kind):
    rule = {"name": "count", "in": "stdout", "json": "count", kind: 1}
    one = {**load("fio_sequential_read"), "valid": [rule]}
    assert checks(one, {**FIO, "stdout": json.dumps({"count": 10**400})}) == {"count": False}


def test_random_reads_of_two_drives_have_one_histogram():
    [job] = json.loads(RANDOM_READS["result.json"])["jobs"]
    assert job["read"]["clat_ns"]["N"] == job["read"]["total_ios"]
    without = {"result.json": RANDOM_READS["result.json"].replace('"percentile"', '"other"')}
    source = load("fio_random_read")["metrics"]["completion_latency_ns"]
    with pytest.raises(ExtractionError, match="no value"):
        extract_number(source, without)


def test_nvbandwidth_runs_on_the_device_of_the_load():
    assert load("nvbandwidth", device=POCL)["environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-0123"}


# The three indicators of document 004.
LOCAL, REMOTE, CACHE = (
    f"last_level_misses_{where}" for where in ("local_memory", "remote_memory", "remote_cache")
)
SKYLAKE = {"cpu_vendor": "GenuineIntel", "cpu_family": "6", "cpu_model_number": "85"}
SANDY_BRIDGE = {**SKYLAKE, "cpu_model_number": "45"}
MILAN = {"cpu_vendor": "AuthenticAMD", "cpu_family": "25", "cpu_model_number": "1"}


def models(one):
    for entry in one["models"]:
        first, last = (entry, entry) if isinstance(entry, int) else entry
        yield from ((one["vendor"], one["family"], model) for model in range(first, last + 1))


def test_every_file_is_valid_and_has_all_three_indicators():
    assert {document["counters"] for document in read_counter_files()} == set(
        yaml_file_names(module.COUNTERS_FOLDER)
    )
    for document in read_counter_files():
        assert {LOCAL, REMOTE, CACHE} <= set(document["events"]), document["counters"]


def test_no_processor_is_in_two_files():
    of_files = [
        set().union(*(models(one) for one in document["processors"]))
        for document in read_counter_files()
    ]
    for one, other in itertools.combinations(of_files, 2):
        assert not one & other


def configs(found):
    return [(event["config"], event["sign"]) for event in found["events"]]


def test_a_host_gets_the_events_of_its_processor():
    found = find_counter_events([LOCAL, REMOTE, CACHE], SKYLAKE, "b.yaml")
    assert configs(found[LOCAL]) == [(0x01D3, 1)]
    assert configs(found[REMOTE]) == [(0x02D3, 1)]
    assert configs(found[CACHE]) == [(0x04D3, 1), (0x08D3, 1)]  # HITM and forwards
    assert "skylakex" in found[CACHE]["source"]
    found = find_counter_events([LOCAL, REMOTE], MILAN, "b.yaml")
    assert configs(found[LOCAL]) == [(0x0843, 1)]
    assert configs(found[REMOTE]) == [(0x4043, 1)]


def test_what_comes_from_remote_caches_may_be_a_difference_as_in_document_004():
    found = find_counter_events([CACHE], SANDY_BRIDGE, "b.yaml")
    assert configs(found[CACHE]) == [(0x20D1, 1), (0x01D3, -1), (0x04D3, -1)]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({**SKYLAKE, "cpu_model_number": "142"}, "GenuineIntel family 6 model 142"),
        ({"cpu_vendor": None, "cpu_family": None, "cpu_model_number": None}, "this processor"),
        ({}, "this processor"),
    ],
)
def test_a_processor_without_events_gets_the_reason(host, words):
    [found] = find_counter_events([LOCAL], host, "b.yaml").values()
    assert set(found) == {"reason"} and words in found["reason"]


def test_amds_high_bits_of_an_event_stand_apart():
    event = {"code": 0x1C7, "umask": 0x02}
    assert encode_x86_event("AuthenticAMD", event) == 0x1_0000_02C7
    assert encode_x86_event("GenuineIntel", {"code": 0xD3, "umask": 0x20}) == 0x20D3


def test_a_counter_that_no_processor_has_is_refused():
    with pytest.raises(UserError, match="did you mean last_level_misses_remote_cache"):
        find_counter_events(["last_level_misses_remote_cahce"], SKYLAKE, "b.yaml")


def test_a_points_load_says_what_to_count_if_its_benchmark_does(paper_host):
    for experiment, names in (("numa_runtime", {LOCAL, REMOTE, CACHE}), ("latency_matrix", set())):
        [load, *_] = plan_host(paper_host, read_config(), [experiment]).points[0]["loads"]
        assert set(load.get("counters", {})) == names
        assert {each["counter"] for each in load["metrics"].values() if "counter" in each} == names
        if names:  # the paper's server has Zen 3
            assert configs(load["counters"][REMOTE]) == [(0x4043, 1)]


def test_a_metric_of_a_counter_that_is_not_listed_is_refused(tmp_path, monkeypatch):
    text = (module.BENCHMARKS_FOLDER / "chaosity_bandwidth.yaml").read_text()
    text = text.replace(
        "\nvalid:", "\n  c_count: {counter: last_level_misses_local_memory}\nvalid:"
    )
    (tmp_path / "chaosity_bandwidth.yaml").write_text(text)
    monkeypatch.setattr(module, "BENCHMARKS_FOLDER", tmp_path)
    with pytest.raises(UserError, match="is not in `counters`"):
        module.load_benchmark("chaosity_bandwidth")

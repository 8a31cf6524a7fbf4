"""Recorded output of the real tools, as their benchmark files read it, and events of counters."""

from __future__ import annotations

import itertools
import json
import re
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


@pytest.fixture
def fio():
    return {"stdout": "", **of_fio("two_drives.json", "rate_bw.1.log", "rate_bw.2.log")}


@pytest.fixture
def random_reads():
    return of_fio("random_two_drives.json", "rate_iops.1.log", "rate_iops.2.log")


@pytest.fixture
def stream():
    return recorded("", stdout="stream-like.txt")


@pytest.mark.parametrize(
    ("benchmark", "outputs", "find", "put", "broken"),
    [
        ("fio_sequential_read", "fio", '"direct": "1"', '"direct": "0"', "O_DIRECT"),
        ("fio_sequential_read", "fio", '"error": 0', '"error": 5', "no error"),
        ("fio_sequential_read", "fio", '"bs": "1048576"', '"bs": "4096"', "block size"),
        (
            *("fio_random_read", "random_reads"),
            *('"group_reporting": "1"', '"group_reporting": "0"', "one group of jobs"),
        ),
        ("fio_random_read", "random_reads", '"rw": "randread"', '"rw": "read"', "random reads"),
        ("fio_random_read", "random_reads", '"iodepth": "32"', '"iodepth": "1"', "queue depth"),
        ("fio_random_read", "random_reads", '"numjobs": "1"', '"numjobs": "4"', "jobs"),
        ("fio_random_read", "random_reads", '"error": 0', '"error": 5', "no error"),
        (
            *("stream", "stream"),
            *("Solution Validates", "Solution Does not validate", "result is right"),
        ),
        ("stream", "stream", "counted = 2", "counted = 1", "threads"),
        ("stream", "stream", "Array size = 100000000", "Array size = 10000000", "array size"),
        ("stream", "stream", "executed 100 times", "executed 10 times", "iterations"),
    ],
)
def test_a_tool_that_did_something_else_is_found_out(
    request, benchmark, outputs, find, put, broken
):
    printed = request.getfixturevalue(outputs)
    changed = {name: text.replace(find, put) for name, text in printed.items()}
    assert changed != printed
    assert failed_checks(load(benchmark, kernel="Triad"), changed) == {broken}


def test_fio_sums_over_drives_and_did_what_was_asked(fio):
    one = load("fio_sequential_read")
    assert set(checks(one, fio).values()) == {True}
    both = extract_number(one["metrics"][METRIC], fio)
    [first, second] = metric_values.progress_series(one["progress"], fio, 0.0)
    begin, end = metric_values.common_time_span([first, second])
    assert 0.3 < metric_values.rate_in_window([first, second], begin, end) / both < 3


def test_fio_cut_short_is_no_result(fio):
    one = load("fio_sequential_read")
    cut = {**fio, "result.json": fio["result.json"][:200]}
    assert set(checks(one, cut).values()) == {False}
    with pytest.raises(ExtractionError):
        extract_number(one["metrics"][METRIC], cut)


@pytest.mark.parametrize("kind", ["at_least", "at_most"])
def test_an_output_with_a_number_above_all_floats_fails_its_rule(fio, kind):
    rule = {"name": "count", "in": "stdout", "json": "count", kind: 1}
    one = {**load("fio_sequential_read"), "valid": [rule]}
    assert checks(one, {**fio, "stdout": json.dumps({"count": 10**400})}) == {"count": False}


def test_random_reads_of_two_drives_are_one_group_with_one_histogram(random_reads):
    one = load("fio_random_read")
    assert set(checks(one, random_reads).values()) == {True}
    assert {name: extract_number(s, random_reads) for name, s in one["metrics"].items()} == {
        "read_rate_reads_per_second": pytest.approx(4183.157),
        "completion_latency_ns": 11206656,
        "completion_latency_p99_ns": 92798976,
    }
    [job] = json.loads(random_reads["result.json"])["jobs"]
    assert job["read"]["clat_ns"]["N"] == job["read"]["total_ios"]
    series = metric_values.progress_series(one["progress"], random_reads, 0.0)
    assert len(series) == 2
    begin, end = metric_values.common_time_span(series)
    both = metric_values.rate_in_window(series, begin, end)
    assert both == pytest.approx(4183, rel=0.1)
    without_reads = random_reads["result.json"].replace('"percentile"', '"other"')
    with pytest.raises(ExtractionError, match="no value"):
        extract_number(one["metrics"]["completion_latency_ns"], {"result.json": without_reads})


def test_likwid_bench():
    one = load("likwid_bench", kernel="stream")
    text = (RECORDED / "likwid-bench-5.2_stream.txt").read_text()
    assert set(checks(one, {"stdout": text}).values()) == {True}
    assert extract_number(one["metrics"][METRIC], {"stdout": text}) == pytest.approx(9086.34e6)
    assert "stream_avx512" in one["command"]
    smaller = text.replace("Size (Byte):\t\t299999232", "Size (Byte):\t\t99999232")
    assert checks(one, {"stdout": smaller})["working set"] is False
    # Its own triad is not STREAM's.
    text = (RECORDED / "likwid-bench-5.2_triad_mem_avx512.txt").read_text()
    assert checks(one, {"stdout": text})["kernel"] is False


@pytest.mark.parametrize("kernel", ["Copy", "Scale", "Add", "Triad"])
def test_stream(stream, kernel):
    one = load("stream", kernel=kernel)
    assert set(checks(one, stream).values()) == {True}
    expected = {"Copy": 50e9, "Scale": 40e9, "Add": 48e9, "Triad": 2.4e9 / 0.051}[kernel]
    assert extract_number(one["metrics"][METRIC], stream) == pytest.approx(expected)


def test_the_real_stream_output():
    one = load("stream", kernel="Triad")
    text = (RECORDED / "stream-5.10_gcc12_2threads.txt").read_text()
    # It was compiled with the default, ten.
    assert failed_checks(one, {"stdout": text}) == {"iterations"}
    assert extract_number(one["metrics"][METRIC], {"stdout": text}) == pytest.approx(
        2.4e9 / 0.054779
    )


POCL = {
    "name": "opencl0",
    "type": "cpu",
    "platform": "Portable Computing Language",
    "device": "pthread-skylake-avx512-Intel(R) Xeon(R) Processor",
    "twin": 0,
    "uuid": "0123",
}


def clpeak(kind):
    names = {"stdout": f"clpeak-1.1.2_{kind}.txt", "clpeak.xml": f"clpeak-1.1.2_{kind}.xml"}
    return {name: (RECORDED / file).read_text() for name, file in names.items()}


def test_clpeak_gives_the_best_vector_width():
    one, outputs = load("clpeak", device=POCL, threads=1), clpeak("global")
    assert set(checks(one, outputs).values()) == {True}
    widths = [float(text) for text in re.findall(r">([0-9.]+)</float", outputs["clpeak.xml"])]
    assert len(widths) == 5
    assert extract_number(one["metrics"][METRIC], outputs) == pytest.approx(max(widths) * 1e9)


def test_clpeak_of_another_device_of_too_many_threads_or_of_none_is_no_measurement():
    one, outputs = load("clpeak", device=POCL, threads=1), clpeak("global")
    other = load("clpeak", device={**POCL, "device": "another"}, threads=1)
    assert failed_checks(other, outputs) == {"device"}
    more = {**outputs, "stdout": outputs["stdout"].replace("units   : 1", "units   : 2")}
    assert failed_checks(one, more) == {"no more threads than units"}
    assert not any(checks(one, {"stdout": ""}).values())
    with pytest.raises(ExtractionError):
        extract_number(one["metrics"][METRIC], {"stdout": "", "clpeak.xml": "<clpeak></clpeak>"})


def test_clpeak_copies_both_ways():
    one, outputs = load("clpeak_transfer", device=POCL), clpeak("transfer")
    assert set(checks(one, outputs).values()) == {True}
    found = {name: extract_number(source, outputs) for name, source in one["metrics"].items()}
    assert found["host_to_device_bytes_per_second"] == pytest.approx(3.27385e9)
    assert found["device_to_host_bytes_per_second"] == pytest.approx(5.81165e9)


def test_nvbandwidth_gives_each_direction_and_the_device_itself():
    one = load("nvbandwidth", device=POCL)
    outputs = {"stdout": (RECORDED / "nvbandwidth-0.8.json").read_text()}
    assert set(checks(one, outputs).values()) == {True}
    found = [extract_number(source, outputs) / 1e9 for source in one["metrics"].values()]
    assert found == pytest.approx([55.63, 55.12, 48.5, 47.25, 1250.0])
    assert one["environment"] == {"CUDA_VISIBLE_DEVICES": "GPU-0123"}
    waived = outputs["stdout"].replace('"status" : "Passed"', '"status" : "Waived"', 1)
    assert not checks(one, {"stdout": waived})["passed"]
    other = outputs["stdout"].replace("host_to_device_memcpy_ce", "device_local_copy", 1)
    assert not checks(one, {"stdout": other})["first"]


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
        yaml_file_names(module.COUNTERS)
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
    text = (module.BENCHMARKS / "chaosity_bandwidth.yaml").read_text()
    text = text.replace(
        "\nvalid:", "\n  c_count: {counter: last_level_misses_local_memory}\nvalid:"
    )
    (tmp_path / "chaosity_bandwidth.yaml").write_text(text)
    monkeypatch.setattr(module, "BENCHMARKS", tmp_path)
    with pytest.raises(UserError, match="is not in `counters`"):
        module.load_benchmark("chaosity_bandwidth")

"""The files of templates/counters, and which events a host's processor gets from them."""

from __future__ import annotations

import itertools

import pytest

from chaosity.design.benchmark_templates import (
    encode_x86_event,
    find_counter_events,
    read_counter_files,
)
from chaosity.design.host_plan import plan_host
from chaosity.documents import shipped_documents as module
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import yaml_file_names
from chaosity.errors import UserError

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

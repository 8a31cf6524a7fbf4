"""Wrong input is one sentence that names file, key and what is allowed, before any job."""

from __future__ import annotations

import pytest
import yaml

from chaosity.documents import shipped_documents as module
from chaosity.documents.checked_yaml import check_document, read_yaml
from chaosity.documents.config import Config, check_config, read_config
from chaosity.documents.experiments import ExperimentDocument
from chaosity.documents.shipped_documents import (
    DEFAULT_CONFIG_FILE,
    load_benchmark,
    yaml_file_names,
)
from chaosity.errors import UserError


@pytest.fixture
def good():
    return read_config()


def test_the_default_config_has_every_key(good):
    assert set(good) == set(Config.__annotations__)


RULE = {"relative_precision": 0.1, "min_seconds": 0.5, "max_seconds": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"benchmarks": {"memory_bandwidth": "sream"}}, ["'sream'", "did you mean stream?"]),
        (
            {"benchmarks": {"memory_bandwidth": "fio_sequential_read"}},
            ["is of the category storage_bandwidth"],
        ),
        ({"parameters": {"fio_sequential_read": {"depth": 1}}}, ["no parameter 'depth'"]),
        ({"parameters": {"fio": {}}}, ["unknown benchmark 'fio'"]),
        ({"levels": {"latency_by_szie": {"bytes": 3}}}, ["did you mean latency_by_size?"]),
        ({"levels": {"latency_by_size": {"size": 3}}}, ["does not vary 'size'", "bytes"]),
        (
            {"stopping": {"memory_bandwidth": {**RULE, "min_seconds": -1}}},
            ["stopping.memory_bandwidth.min_seconds", "-1"],
        ),
        (
            {"stopping": {"memory_bandwidth": {**RULE, "min_seconds": 9}}},
            ["min_seconds is above max_seconds"],
        ),
        ({"levels": {"latency_by_size": {"bytes": "9" * 5000}}}, ["levels.latency_by_size.bytes"]),
        ({"expected_configuration": "nps1\n"}, ["does not match"]),
    ],
)
def test_wrong_config_is_an_error_with_place_and_remedy(good, change, words):
    merged = {**good, **change}
    if "stopping" in change:
        merged["stopping"] = {**good["stopping"], **change["stopping"]}
    with pytest.raises(UserError) as caught:
        check_config(merged)
    assert all(word in str(caught.value) for word in words)
    assert str(caught.value).count("\n") == 0


def test_numbers_may_be_texts_from_a_command_line(good):
    given = {"latency_by_size": {"bytes": "3"}}
    assert check_config({**good, "levels": given})["levels"] == {"latency_by_size": {"bytes": 3}}
    rule = {"relative_precision": "null", "min_seconds": "0.5", "max_seconds": "1"}
    stopping = check_config({**good, "stopping": {**good["stopping"], "core_to_core": rule}})
    expected = {"relative_precision": None, "min_seconds": 0.5, "max_seconds": 1}
    assert stopping["stopping"]["core_to_core"] == expected


def test_null_means_all_levels(good):
    assert check_config({**good, "levels": None})["levels"] is None


@pytest.mark.parametrize(
    "path", sorted(DEFAULT_CONFIG_FILE.parent.glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_written_config_says_the_same_when_it_is_merged_over_the_default(path, tmp_path):
    # The runs of single hosts and of rounds get such a file; Snakemake merges it in the same way.
    config = read_config(path)
    optional = {"working_set": {**config["working_set"], "sweep_at_most_bytes": None}, "sample": {}}
    for given in (config, check_config({**config, **optional})):
        written = tmp_path / path.name
        written.write_text(yaml.safe_dump(given, sort_keys=False))
        assert read_config(written) == given


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [1,\nc: 2\n", r"config.yaml, line \d+: the file is not YAML"),
        (f"a: 0x{'f' * 5000}", "too many digits"),  # Python cannot print it
        ("", "config.yaml: the file has no key of a config"),
        ("- 1\n", "config.yaml: the file has no key of a config"),
        ('levels: {a: {b: "x: y: z"}}\n', "levels.a.b: the value 'x: y: z' is not of type integer"),
    ],
)
def test_a_config_of_another_form_is_an_error_of_one_sentence(tmp_path, text, words):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_config(path)


def test_a_config_changes_single_keys_of_the_default(tmp_path, good):
    path = tmp_path / "config.yaml"
    path.write_text("working_set: {at_least_bytes: 4096}\nbenchmarks: {}\n")
    changed = read_config(path)
    assert changed["working_set"] == {**good["working_set"], "at_least_bytes": 4096}
    assert changed["benchmarks"] == good["benchmarks"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("([0-9.]+ MiB", "is not a regular expression: missing ), unterminated subpattern"),
        ("([0-9]+)[.]([0-9]+) MiB", "has 2 groups, not 1; put ( ) around the value alone"),
    ],
)
def test_a_wrong_regular_expression_is_refused(tmp_path, monkeypatch, pattern, words):
    text = (module.BENCHMARKS_FOLDER / "sysbench_memory.yaml").read_text()
    (tmp_path / "sysbench_memory.yaml").write_text(
        text.replace('"\\\\(([0-9.]+) MiB/sec\\\\)"', f"'{pattern}'")
    )
    monkeypatch.setattr(module, "BENCHMARKS_FOLDER", tmp_path)
    with pytest.raises(UserError) as caught:
        load_benchmark("sysbench_memory")
    assert words in str(caught.value)
    assert "sysbench_memory.yaml, metrics.elements_per_second" in str(caught.value)


def test_no_benchmark_or_experiment_is_named_in_the_code(root):
    names = yaml_file_names(module.BENCHMARKS_FOLDER) + yaml_file_names(module.EXPERIMENTS_FOLDER)
    for path in (root / "workflow" / "chaosity").rglob("*.py"):
        text = path.read_text()
        for name in set(names) - {"interference", "stream"}:  # common words, too
            assert f'"{name}"' not in text, f"{path} names {name}"


FIGURE = {"name": "a", "title": "A", "load": "memory", "metric": "bandwidth_bytes_per_second"}
HEATMAP = {**FIGURE, "kind": "heatmap", "rows": "initiator", "columns": "target"}
LINES = {**FIGURE, "kind": "lines", "x": "threads"}
BOUND = {"title": "B", "load": "memory", "metric": "bandwidth_bytes_per_second"}


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (
            {**HEATMAP, "colour": "red"},
            "figures.0: unknown key 'colour'; did you mean colour_scale?",
        ),
        ({**HEATMAP, "kind": "pie"}, "figures.0.kind: the value 'pie' is not allowed"),
        (
            {**FIGURE, "kind": "heatmap", "columns": "target"},
            "figures.0: the key 'rows' is missing",
        ),
        ({**HEATMAP, "series": "placement"}, "figures.0: unknown key 'series'"),
        ({**HEATMAP, "combine": "mean"}, "figures.0.combine: the value 'mean' is not allowed"),
        ({**LINES, "bounds": [{**BOUND, "times": 0}]}, "figures.0.bounds.0.times: the value 0"),
        ({**LINES, "bounds": [{"title": "B", "load": "x"}]}, "bounds.0: the key 'metric' is"),
        ({**LINES, "bounds": [{**BOUND, "along": True}]}, "bounds.0: unknown key 'along'; did you"),
        ({**LINES, "bounds": [{**BOUND, "where": {"x": {}}}]}, "bounds.0.where.x: the value {}"),
        ({**LINES, "sum": True, "series": "placement"}, "figures.0: the key 'sum' needs"),
        ({**LINES, "sum": True, "series": "load", "metric": "latency_ns"}, "the key 'sum' needs"),
    ],
)
def test_a_wrong_figure_of_an_experiment_is_named(figure, words):
    document = read_yaml(module.EXPERIMENTS_FOLDER / "memory_bandwidth.yaml")
    with pytest.raises(UserError) as caught:
        check_document({**document, "figures": [figure]}, ExperimentDocument, "e.yaml")
    assert words in str(caught.value)

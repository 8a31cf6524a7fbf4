"""Any YAML document of a user is read or refused in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from chaosity.design.benchmark_templates import find_counter_events, read_counter_files
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import ROOT, load_benchmark, load_experiment
from chaosity.simulation.machine_description import read_machine_description
from chaosity.topology.topology_model import configuration_name
from machines import shipped_topology
from strategies import change_document, change_text, changed, check_any_input, documents, write_text

ODD_YAML = (
    *("{a: " * 10_000, "a: &a {b: *a}", "\0", "a: !!binary 'x'", "? [x]\n: 1", "- !!set {x}"),
    *("a: 2026-13-01", "a: 1:2", "a: .nan", "%YAML 9.9\n--- x", "", "\ufeffa: 1", "<<: [1, 2]"),
    *("{{ 7 * 7 }}", "a: b: c", "a:\t- x", "a: *b", "---\na: 1\n---\nb: 2", "1: 2"),
)


def changed_yaml(paths: list[Path]) -> st.SearchStrategy[str]:
    """Return YAML texts: files with changed values or lines, and odd documents."""
    texts = [path.read_text() for path in paths]
    samples = [json.loads(json.dumps(yaml.safe_load(text), default=str)) for text in texts]
    return st.one_of(
        *[changed(samples, change_document, 3).map(json.dumps)] * 3,  # JSON is YAML
        changed(texts, change_text),
        documents().map(json.dumps),
        st.sampled_from(ODD_YAML),
    )


@cache
def default_config() -> Any:
    return read_config()


def write_by_name(
    text: str, folder: Path, key: str, constant: str, patch: pytest.MonkeyPatch
) -> str:
    """Write a document into a folder that replaces one of the project's; return its name."""
    named = re.search(rf'\b{key}"?: "?(\w{{1,60}})', text)
    name = named[1] if named else "any"
    write_text(folder / f"{name}.yaml", text)
    patch.setattr(f"chaosity.documents.shipped_documents.{constant}", folder)
    return name


def parse_experiment(text: str, folder: Path) -> None:
    server = shipped_topology("xeon_8358")
    host = PlannedHost("a", configuration_name(server), server, {"chaosity_simulated": "x"})
    config = {**default_config(), "replicates": 1, "levels": {}, "budget": None}
    with pytest.MonkeyPatch.context() as patch:
        name = write_by_name(text, folder, "experiment", "EXPERIMENTS_FOLDER", patch)
        load_experiment(name)
        plan_host(host, {**config, "experiments": [name]})


def parse_benchmark(text: str, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        load_benchmark(write_by_name(text, folder, "benchmark", "BENCHMARKS_FOLDER", patch))


def parse_config(text: str, folder: Path) -> None:
    read_config(write_text(folder / "config.yaml", text))


def parse_machine(text: str, folder: Path) -> None:
    write_text(folder / "epyc_7413.yaml", (ROOT / "templates/machines/epyc_7413.yaml").read_text())
    read_machine_description(
        write_text(folder / "epyc_7413_nps4.yaml", text), shipped_topology("epyc_7413_nps4")
    )


def parse_counters(text: str, folder: Path) -> None:
    write_text(folder / "amd_zen.yaml", text)
    host: Any = {"cpu_vendor": "AuthenticAMD", "cpu_family": "25", "cpu_model_number": "1"}
    read_counter_files.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chaosity.design.benchmark_templates.COUNTERS_FOLDER", folder)
        try:
            names = {str(name) for file in read_counter_files() for name in file["events"]}
            find_counter_events(sorted(names), host, "benchmark")
        finally:
            read_counter_files.cache_clear()


# Files that are changed -> the parser and its share of the examples.
CASES: dict[str, tuple[Callable[[str, Path], None], float]] = {
    "workflow/experiments/*.yaml": (parse_experiment, 0.12),
    "templates/benchmarks/*.yaml": (parse_benchmark, 0.2),
    "config/config.yaml": (parse_config, 0.15),
    "templates/machines/epyc_7413*.yaml": (parse_machine, 0.3),
    "templates/counters/*.yaml": (parse_counters, 0.3),
}


@pytest.mark.parametrize("files", CASES)
def test_any_input_gives_a_value_or_one_sentence(files: str, tmp_path: Path) -> None:
    default_config()  # it needs the folders that the parsers replace
    parse, share = CASES[files]
    check_any_input(changed_yaml(sorted(ROOT.glob(files))), parse, tmp_path, share)

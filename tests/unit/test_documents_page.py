"""The page that maps figures of the documents to experiments names only what exists."""

from __future__ import annotations

import re

from chaosity.documents.shipped_documents import (
    EXPERIMENTS_FOLDER,
    load_experiment,
    yaml_file_names,
)
from compiler_cache import ROOT

NAMES = yaml_file_names(EXPERIMENTS_FOLDER)
FIGURES = {figure["name"] for name in NAMES for figure in load_experiment(name).get("figures", [])}
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/explanation/papers.md").read_text().splitlines()
    if line.count("|") == 5 and "---" not in line and not line.startswith("| figure |")
]


def in_code(text: str) -> list[str]:
    """Return the words of a text that are set as code."""
    return re.findall(r"`([^`]+)`", text)


def test_the_rows_name_experiments_and_their_figures() -> None:
    for _, experiments, figures, _ in CELLS:
        assert set(in_code(experiments)) <= set(NAMES)
        assert set(in_code(figures)) - {"topology.svg"} <= FIGURES
        assert figures


def test_the_page_has_a_row_for_each_experiment_from_a_document() -> None:
    listed = {name for row in CELLS for name in in_code(row[1])}
    from_documents = {
        name for name in NAMES if "document 0" in str(load_experiment(name)["source"])
    }
    left_out = {
        "core_to_core",  # document 001 shows no matrix of it
        "gpu_bandwidth",  # a part of table 1, which gpu_and_cpu measures too
        "gpu_copies",
        "loaded_latency",  # modes_under_load has the figure of the document
        "smt_siblings",
        "storage_every_buffer",
        "storage_sample",
    }
    assert from_documents - listed == left_out

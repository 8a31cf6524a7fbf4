"""Reports of simulated machines that read as measured, and whose files a test changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from lxml import etree

from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table
from machines import configuration_folder, pretend_measured, run_chaosity


def measured_results(
    results: Path, folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame] | None = None
) -> Path:
    """Copy results of a host into a folder and let them pass for measured, with a changed table.

    Returns the copy of ``results/HOST/CONFIGURATION``.
    """
    shutil.copytree(results, folder / "results")
    place = configuration_folder(folder / "results")
    pretend_measured(place)
    table = read_parquet_table(place / "measurements.parquet").assign(origin=None)
    write_parquet_table(change(table) if change else table, place / "measurements.parquet")
    return place


def change_documents(place: Path, pattern: str, change: Callable[[Any], object]) -> None:
    """Change the JSON documents in the files of a folder that match a pattern."""
    for path in place.glob(pattern):
        document = json.loads(path.read_text())
        change(document)
        path.unlink()  # a record is a hard link of its attempt
        path.write_text(json.dumps(document))


def write_report(place: Path, *options: str | Path) -> str:
    """Write the report of ``results/HOST/CONFIGURATION``, and return its page."""
    table, page = place / "measurements.parquet", place / "report.html"
    run_chaosity("report", place / "plan.json", "--table", table, "--output", page, *options)
    return page.read_text(encoding="utf-8")


def texts(page: str, path: str) -> list[str]:
    """Return what a reader sees of each element of a page with this XPath, as one line."""
    found = etree.HTML(page).xpath(path)
    return [" ".join(" ".join(each.itertext()).split()) for each in found]


NO_PRODUCT = {"product_vendor": None, "product_name": None}


def system_document(configuration: str = "nps4", **changes: Any) -> dict[str, Any]:
    """The document of the system component of a healthy server; `changes` replaces values."""
    return {
        "component": "system",
        "configuration": configuration,
        "cpu_model": "AMD EPYC 7413 24-Core Processor",
        "kernel_release": "6.1.0-18-amd64",
        "microcode": "0xa0011d1",
        "hypervisor": False,
        "smt": "on",
        "cpu_flags": [f"flag{number}" for number in range(40)],
        "firmware": {"bios_vendor": "AMI", "bios_version": "2.4", **NO_PRODUCT},
        "frequency": {"governors": ["performance"], "upper_limits_hertz": [3630000000]},
        "memory_settings": {"transparent_huge_pages": "madvise", "numa_balancing": "0"},
        "huge_page_pools": [{"node": 0, "page_bytes": 2097152, "pages": 0}],
        "tools": {"gcc": "12.2.0", "chaosity_bandwidth": "sha256 1f3a9c"},
        **changes,
    }

"""What a report is made of besides measurements."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.records.record_format import make_check
from chaosity.report.run import RecordSummary, Run
from chaosity.store.measurements import Measurements


def run_of(tidy: pd.DataFrame | None = None, folder: Path = Path("nowhere"), **parts: Any) -> Run:
    """A run with this tidy table, of which these parts are known, so that none is read."""
    run = Run(folder / "plan.json", folder / "report.html")
    if tidy is not None:
        parts["measurements"] = Measurements.from_table(tidy)
    vars(run).update(parts)
    return run


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


CONFIG = {
    "seed": 1,
    "results": "results",
    "stopping": {
        "memory_bandwidth": {"relative_precision": 0.01, "min_seconds": 0.8, "max_seconds": 1.5},
        "storage_bandwidth": {"relative_precision": 0.05, "min_seconds": 2, "max_seconds": 5},
    },
}


def record_summaries(tidy: pd.DataFrame) -> list[RecordSummary]:
    """A record's summary for every measured replicate of a tidy table."""
    found = []
    keys = ["experiment", "point", "replicate"]
    for key, rows in tidy[tidy["status"] != "missing"].groupby(keys, sort=False):
        row = rows.iloc[0]
        began = datetime.fromisoformat(row["measured_at"])
        ended = (began + timedelta(seconds=2.5)).isoformat().replace("+00:00", "Z")
        checks = (
            make_check("memory: pages", True, "99.9 % on node 0"),
            make_check("memory: precision", key[2] != 2, "±1.71 % in the run", decisive=False),
        )
        found.append(
            RecordSummary(
                *key,
                row["status"],
                row["measured_at"],
                ended,
                {
                    load: f"numactl --cpunodebind=0 --membind=0 {load}-tool --seconds 1.5"
                    for load in rows["load"]
                },
                checks,
                {"fio": "fio-3.33"},
            )
        )
    return found

"""Where the data of others lies that tests read; the README beside each has its sources."""

from __future__ import annotations

from pathlib import Path

_DATA = Path(__file__).resolve().parents[1] / "data"
# Measurements of real machines, as tables.
PUBLISHED_TABLES = _DATA / "published"
# Topologies of real machines: hwloc's XML, captured /sys, and known facts on each.
REAL_MACHINES = _DATA / "real_machines"

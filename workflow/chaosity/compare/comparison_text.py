"""Describe cells and groups of comparisons as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from chaosity.units import metric_words

# Verdicts on a cell.
BETTER, WORSE = "better", "worse"
NO_DIFFERENCE, NOT_TESTED = "no difference detected", "not tested"
ARROW = "\N{RIGHTWARDS ARROW}"


def group_text(category: str, metric: str, corunning: bool = False) -> str:
    """Return the name of a group: "memory bandwidth", "memory latency with co-running loads"."""
    words, measured = str(category).replace("_", " "), metric_words(str(metric))
    quantity, _, more = measured.partition(" ")  # latency p99 of memory latency
    words = words if words.endswith(quantity) else f"{words} {quantity}"
    words = f"{words} {more}".strip()
    return f"{words} with co-running loads" if corunning else words


def class_text(description: Mapping[Any, Any]) -> str:
    """Return the class of a cell: "node -> same package, drive"."""
    part = str(description["part"]).replace("_", " ")
    kind = str(description["target_kind"]).replace("_", " ")
    drives = description.get("drives")
    several = drives is not None and drives > 1  # NaN > 1 is false
    number = f"{drives:.0f} x " if several else ""
    target = part if kind == "node" else f"{number}{kind}, {part}"
    return f"{description['initiator_kind']} {ARROW} {target}"


def benchmark_and_kernel_text(row: Mapping[str, Any]) -> str:
    """Return benchmark and kernel: "chaosity bandwidth (read)"."""
    program = str(row["benchmark"]).replace("_", " ")
    program = "an unknown program" if program == "unknown" else program
    known = row["kernel"] and row["kernel"] != "unknown"
    return f"{program} ({row['kernel']})" if known else program


def ratio_text(ratio: float, low: float | None, high: float | None) -> str:
    """Return a ratio with its interval: "0.61 times (0.58 to 0.64)"."""
    interval = "no interval" if low is None or pd.isna(low) else f"{low:.2f} to {high:.2f}"
    return f"{ratio:.2f} times ({interval})"

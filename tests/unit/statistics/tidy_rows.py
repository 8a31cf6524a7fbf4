"""Rows of the tidy table by hand, with the columns that statistics read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd


def tidy_rows(values: Sequence[float | None], **columns: Any) -> pd.DataFrame:
    """Return a row for each value, replicates of one cell; None is a failed one.

    `columns` replaces columns or adds them: the same value for all rows, or one for each.
    """
    return pd.DataFrame(
        {
            "host": "h",
            "configuration": "c",
            "experiment": "e",
            "point": "p",
            "load": "memory",
            "initiator": "i",
            "target": "t",
            "metric": "bandwidth_bytes_per_second",
            "replicate": range(1, len(values) + 1),
            "status": ["failed" if value is None else "valid" for value in values],
            "reason": None,
            "value": values,
            **columns,
        }
    )

"""Takes over a record that an earlier try of the same run has left, instead of measuring again.

Several measurements share one Slurm job. When that is cancelled, runs out of time or loses its
node, Snakemake tries all of them again, also those that were done. Their attempts are still there.

Standard library alone, like all of the runner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaosity.records import load

# When the run began, as `records.utc_now` writes it; unset outside a run. An attempt that is older
# is no reason not to measure: whoever starts a run anew wants what is missing measured.
RUN_BEGAN = "CHAOSITY_RUN_BEGAN"


def earlier_attempt(point: Mapping[str, Any], replicate: int, path: Path) -> Path | None:
    """The newest record of this point and replicate that was made since the run began.

    Args:
        point: the point; only a record of the very same definition will do.
        replicate: 1, 2, ...
        path: where the record is to be, ``rep<N>.json``; ``attempts/`` is beside it.

    Returns:
        The attempt's file, None when there is none.
    """
    began = os.environ.get(RUN_BEGAN)
    if not began:
        return None
    for attempt in sorted(path.parent.glob(f"attempts/rep{replicate}.*.json"), reverse=True):
        try:
            record = load(attempt)
        except ValueError:
            continue
        same = record["point"].get("definition") == point["definition"]
        if same and record["replicate"] == replicate and record["began_at"] >= began:
            return attempt
    return None

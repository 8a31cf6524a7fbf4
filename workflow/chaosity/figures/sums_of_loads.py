"""Add to a figure's series the sum of a point's loads, and the larger load measured alone."""

from __future__ import annotations

import pandas as pd

from chaosity.records.record_types_and_verdict import VALID
from chaosity.statistics.cell_summary import replace_values
from chaosity.store.measurements import LOAD, POINT, Measurements

SUM, LARGER_ALONE = "sum", "larger_load_alone"
_BLOCK = [*POINT, "replicate"]
# Rows that agree in these columns are of the same load, even if it has different roles in points.
_SAME_LOAD = [
    *("host", "configuration", "benchmark", "kernel", "initiator", "target", "metric"),
    *("load_parameters", "replicate"),
]


def add_sums_of_loads(rows: pd.DataFrame, experiment: Measurements) -> pd.DataFrame:
    """Return the rows of a figure, and two more for each replicate of a point with several loads.

    The series `SUM` is the sum of the loads. `LARGER_ALONE` is the value of one load alone: the
    load with the larger median alone, so that noise does not choose it anew in each replicate. A
    point has them only if all its loads are among the rows and, for the latter, measured alone.
    """
    alone = experiment.single_load_rows().valid_rows().rows.rename(columns={"value": "alone"})
    alone = alone[[*_SAME_LOAD, "alone"]].drop_duplicates(_SAME_LOAD)
    both = rows[(rows["load_count"] > 1) & (rows["status"] == VALID)].merge(alone, "left")
    blocks = both.groupby(_BLOCK)
    whole = blocks["value"].transform("count") == both["load_count"]
    sums = replace_values(both, blocks["value"].transform("sum")).assign(series=SUM)[whole]
    both["typical"] = both.groupby([*POINT, *LOAD])["alone"].transform("median")
    largest = both["typical"] == blocks["typical"].transform("max")
    whole = blocks["alone"].transform("count") == both["load_count"]
    larger = replace_values(both, both["alone"]).assign(series=LARGER_ALONE)[whole & largest]
    more = [added.assign(load=added["series"]) for added in (sums, larger)]
    more = [added.drop_duplicates(_BLOCK).reindex(columns=rows.columns) for added in more]
    return pd.concat([rows, *more], ignore_index=True)

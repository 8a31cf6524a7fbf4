"""Steps of latency over the working set, at the ends of caches."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.config import read_config
from chaosity.statistics.latency_steps import find_latency_steps
from chaosity.store.measurements import Measurements
from machines import planned
from table_rows import sweep

KIB, MIB, GIB = 2**10, 2**20, 2**30
# Document 003, serial mode: medians of the eight ranks for 1 MB to 16384 MB.
DOCUMENT_003_NS = [
    *(10.36, 12.945, 14.245, 14.945, 18.62, 35.7, 67.55, 85.95, 95.43, 101.2, 104.195),
    *(107.38, 110.88, 112.58, 130.32),
]


def rows(latencies: dict[float, float], noise: float = 0.0, replicates: int = 3) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {"x": size, "replicate": replicate, "value": value * np.exp(random.normal(0, noise))}
        for replicate in range(1, replicates + 1)
        for size, value in latencies.items()
    )


def test_the_published_sweep_has_the_end_of_its_l3_cache():
    sizes = [MIB * 2**power for power in range(15)]
    first, l3 = find_latency_steps(rows(dict(zip(sizes, DOCUMENT_003_NS, strict=True)), 0.005))
    assert first.is_open_below  # the smallest size is larger than the L2 cache
    assert (l3.first_bytes, l3.last_bytes) == (8 * MIB, 128 * MIB)
    assert (l3.below_bytes, l3.above_bytes) == (32 * MIB, 64 * MIB)
    assert l3.end_bytes.low < l3.end_bytes.median < l3.end_bytes.high
    assert l3.end_bytes.low > 34 * MIB and l3.end_bytes.high < 40 * MIB
    assert (l3.lower_ns, l3.upper_ns) == pytest.approx((14.2, 105.8), rel=0.02)
    assert not (l3.is_open_below or l3.is_open_above)


def test_no_step_without_a_clear_rise():
    flat = {KIB * 2**power: 100.0 for power in range(10)}
    assert find_latency_steps(rows(flat, 0.03)) == ()
    slow_rise = {KIB * 2**power: 10.0 * 1.1**power for power in range(20)}
    assert find_latency_steps(rows(slow_rise, 0.01)) == ()
    once = {**flat, KIB * 512: 130.0}
    [step] = find_latency_steps(rows(once))
    assert (step.is_open_above, step.upper_ns) == (True, pytest.approx(130.0))
    torn = rows(once)
    torn.loc[(torn["x"] == KIB * 512) & (torn["replicate"] == 1), "value"] = 90.0
    assert find_latency_steps(torn) == ()  # one of three replicates shows the reverse
    assert find_latency_steps(rows({KIB: 1.0})) == ()
    assert find_latency_steps(rows(flat).assign(value=np.nan)) == ()


@pytest.mark.parametrize(
    ("sizes", "modes", "cores", "notes"),
    [
        ([4096, MIB], ["serial", "concurrent"], {0: 0, 4: 0}, "Inversions could .* were 1$"),
        ([4096, MIB], ["serial"], {0: 0, 4: 0}, "Contention could .* measured was serial Inversi"),
        ([4096, MIB], ["serial"], {0: 0, 4: 1}, "Contention and inversions could not be found"),
    ],
)
def test_the_analysis_says_which_anomalies_of_size_it_could_not_find(sizes, modes, cores, notes):
    table = sweep(lambda pu, size, mode: size**0.25, sizes, cores, modes=modes)
    found = analyse_host(Measurements.from_table(table))
    assert re.match(notes, " ".join(found.notes))
    assert any("latency over sizes" in tested for tested in found.checked) == (len(modes) > 1)


def test_half_of_the_l3_domains_wait_beside_others_as_the_document_shows():
    """The means of ranks 0, 2, 4 and 6 in concurrent mode over serial mode, without sizes above."""
    working_set = {**read_config()["working_set"], "sweep_at_most_bytes": 4 * GIB}
    config: Any = {"working_set": working_set, "levels": {"latency_by_size": {"pages": 1}}}
    host = planned(
        "epyc_7a53", faults=None, all_points=True, experiments=["latency_by_size"], **config
    )
    rows = host.true_table.where(replicate=1, metric="latency_ns")
    levels = {name: rows.factor_level_of_each_row(name) for name in ("mode", "bytes")}
    for size, expected in ((128 * MIB, 12), (GIB, 46), (2 * GIB, 55), (4 * GIB, 68)):
        same = levels["bytes"].astype(float) == size
        serial, concurrent = (
            rows.select(same & (levels["mode"] == mode)).rows.set_index("initiator")["value"]
            for mode in ("serial", "concurrent")
        )
        waits = (concurrent - serial).sort_index(key=lambda names: names.str[2:].astype(int))
        assert waits.to_numpy()[::2] == pytest.approx(expected, abs=12)
        assert waits.to_numpy()[1::2] == pytest.approx(0, abs=0.5)

"""How often 95 % intervals hold the true value, in simulations.

The logarithm of the noise has a normal distribution, as the statistics assume. The part does not
test intervals with other noise. The interval of a median must hold the true median. The interval of
a ratio must hold the ratio of the true values. The intervals of all pairs of levels must hold all
their true values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.statistics.anova import AnovaResult, analyse_variance
from chaosity.statistics.cell_summary import summarise_cell_ratios_paired_by_block, summarise_cells
from chaosity.statistics.estimates import Estimate, Ratio
from chaosity.statistics.linear_models import compare_groups_of_cells
from chaosity.store.measurements import CELL_COLUMNS

# The standard error of a coverage is 0.4 % for fast simulations and 0.8 % for whole analyses, so an
# error of 2 % is visible.
FAST, SLOW = 3000, 800
LEAST, MOST = 93.0, 97.0
TRUE = 40.0
NODES = 4
FAR = 0.7
Held = Callable[[np.random.Generator], bool]


def compare(_: int) -> Iterator[str]:
    """Yield a line for each kind of interval; the number of pairs is not used."""
    for noise in (0.02, 0.10):
        for n in (3, 5, 10):
            text = f"noise {noise:.0%}, n = {n}"
            yield coverage_line(f"median, t on logarithms, {text}", FAST, median(n, noise))
            yield coverage_line(f"ratio of runs, Welch, {text}", FAST, runs(n, n, noise, noise))
            name = f"ratio in blocks, {text}"
            yield shown(name, float(blocks(n, noise, FAST, random_of_line(name)).mean()), FAST)
        yield coverage_line(
            f"ratio of runs, noise {noise:.0%}, n = 3 with three times the noise, and 10",
            FAST,
            runs(3, 10, 3.0 * noise, noise),
        )
    for kind, cells, n in product(NOISES, CELLS, (3, 5, 10)):
        yield coverage_of_tables(kind, cells, n)
    for kind in NOISES:
        yield coverage_of_tables(kind, 64, 1, replicated=12)
        yield coverage_of_period_ratios(kind, 64, 3)
    yield from analyse_all_studies(0.02, 0, "log")
    yield from analyse_all_studies(0.02, 0, "better")
    yield from analyse_all_studies(0.10, 0, "better")
    yield from analyse_all_studies(0.10, 3, "better")


def random_of_line(name: str) -> np.random.Generator:
    """Return the random numbers for a line of the table, always the same for its name."""
    return np.random.default_rng(list(name.encode()))


def coverage_line(name: str, times: int, held: Held) -> str:
    """Return a line with the coverage over this many simulations."""
    random = random_of_line(name)
    return shown(name, float(np.mean([held(random) for _ in range(times)])), times)


def shown(name: str, share: float, times: int) -> str:
    """Return a coverage as text with its standard error, and mark a coverage other than 95 %."""
    percent, error = 100.0 * share, 100.0 * (share * (1.0 - share) / times) ** 0.5
    verdict = "" if LEAST <= percent <= MOST else "  OUTSIDE"
    return f"{name:72} {percent:5.1f} %  standard error {error:.2f}  (goal: 93 to 97){verdict}"


def noisy_values(random: np.random.Generator, value: float, noise: float, n: int) -> np.ndarray:
    """Return `n` noisy values whose true median is `value`."""
    return value * np.exp(random.normal(0.0, noise, n))


def median(n: int, noise: float) -> Held:
    """Return a function: whether the interval of `Estimate.of_values` holds the true median."""

    def held(random: np.random.Generator) -> bool:
        found = Estimate.of_values(noisy_values(random, TRUE, noise, n))
        return bool(found.low <= TRUE <= found.high)

    return held


NOISES = ("normal", "heavy-tailed", "mixed", "drifting", "disturbed")
# Pairs of 4 and of 8 nodes; standard errors are 0.2 to 0.3 %.
CELLS, VALUES = (16, 64), 6400


def cell_noise(random: np.random.Generator, kind: str, cells: int, n: int) -> np.ndarray:
    """Return logarithms of the noise of this many cells with n replicates; their medians are 0."""
    scatter = 0.02 * random.lognormal(0.0, 0.3, (cells, 1))
    if kind == "heavy-tailed":  # Student's t with 3 degrees of freedom
        return scatter * random.standard_t(3, (cells, n))
    if kind == "mixed":  # a fifth of the cells scatters five times as much
        scatter = scatter * np.where(random.random((cells, 1)) < 0.2, 5.0, 1.0)
    noise = scatter * random.normal(0.0, 1.0, (cells, n))
    if kind == "drifting":  # all cells of a replicate block move together
        noise = noise + random.normal(0.0, 0.01, (1, n))
    if kind == "disturbed":  # runs that get half of the speed
        noise = noise + np.where(random.random((cells, n)) < 0.03, np.log(0.5), 0.0)
    return noise


def cell_rows(logs: np.ndarray) -> pd.DataFrame:
    """Return the tidy table of cells of one kind with this noise; a row of `logs` is a cell."""
    cells, n = logs.shape
    return pd.DataFrame(
        {
            **{column: column for column in (*CELL_COLUMNS, "benchmark", "kernel")},
            "point": np.repeat(np.arange(cells), n).astype(str),
            "replicate": np.tile(np.arange(n), cells),
            "status": "valid",
            "reason": None,
            "value": TRUE * np.exp(logs.ravel()),
        }
    )


def coverage_of_tables(kind: str, cells: int, n: int, replicated: int = 0) -> str:
    """Return the coverage of a table's cells, and how much wider Student's intervals are, as text.

    `replicated` is the number of further cells with two replicates, which are not counted.
    """
    name = f"{cells} cells of one kind, {kind} noise, n = {n}"
    if replicated:
        return single(f"{name}, {replicated} more at n = 2", kind, cells, replicated)
    random, held, students, widths = random_of_line(name), [], [], []
    for _ in range(VALUES // cells):
        logs = cell_noise(random, kind, cells, n)
        found = summarise_cells(cell_rows(logs))
        held.append(float(((found["low"] <= TRUE) & (found["high"] >= TRUE)).mean()))
        students += list(2.0 * stats.t.ppf(0.975, n - 1) * stats.sem(logs, axis=1))
        widths += list(np.log(found["high"] / found["low"]))
    narrower = np.median(students) / np.median(widths)
    return f"{shown(name, float(np.mean(held)), VALUES)}  {narrower:.2f} x narrower"


def single(name: str, kind: str, cells: int, replicated: int) -> str:
    """Return the coverage of cells with one replicate, and their median half width, as text."""
    random, held, widths = random_of_line(name), [], []
    for _ in range(VALUES // cells):
        logs = cell_noise(random, kind, replicated + cells, 2)
        rows = cell_rows(logs)
        once = rows["point"].astype(int) >= replicated
        found = summarise_cells(rows[~once | (rows["replicate"] == 0)])
        found = found[found["n"] == 1]
        assert len(found) == cells
        held.append(float(((found["low"] <= TRUE) & (found["high"] >= TRUE)).mean()))
        widths += list(np.log(found["high"] / found["low"]) / 2.0)
    half = 100.0 * np.median(widths)
    return f"{shown(name, float(np.mean(held)), VALUES)}  median half width {half:.1f} %"


def coverage_of_period_ratios(kind: str, cells: int, n: int) -> str:
    """Return the coverage of ratios of cells in two periods, such as before and after a repair."""
    name = f"ratios of {cells} cells of one kind in two periods, {kind} noise, n = {n}"
    random, held = random_of_line(name), []
    for _ in range(VALUES // cells):
        logs = np.concatenate(np.hsplit(cell_noise(random, kind, cells, 2 * n), 2))
        found = summarise_cells(cell_rows(logs)).to_dict("records")
        for after, before in zip(found[:cells], found[cells:], strict=True):
            ratio = Ratio.of_cells(after, before)
            held.append(bool(ratio.low <= 1.0 <= ratio.high))
    return shown(name, float(np.mean(held)), VALUES)


def runs(n: int, m: int, noise: float, noise_of_reference: float) -> Held:
    """Return a function: whether the interval of `Ratio.of_samples` holds the true ratio."""

    def held(random: np.random.Generator) -> bool:
        above = noisy_values(random, FAR * TRUE, noise, n)
        reference = noisy_values(random, TRUE, noise_of_reference, m)
        found = Ratio.of_samples(above, reference, paired=False)
        return bool(found.low <= FAR <= found.high)

    return held


def blocks(n: int, noise: float, times: int, random: np.random.Generator) -> np.ndarray:
    """Return for each simulation whether the interval of a ratio, paired by block, is right."""
    drift = np.exp(random.normal(0.0, 0.2, (times, n)))
    cells = {}
    for name, value in (("far", FAR * TRUE), ("near", TRUE)):
        values = noisy_values(random, value, noise, times * n).reshape(times, n) * drift
        cells[name] = pd.DataFrame(
            {
                "host": "h",
                "configuration": "c",
                "experiment": "e",
                "load": "l",
                "metric": "m",
                "point": np.repeat(np.arange(times), n).astype(str),
                "initiator": "i",
                "target": "t",
                "replicate": np.tile(np.arange(n), times),
                "status": "valid",
                "reason": None,
                "value": values.ravel(),
            }
        )
    found = summarise_cell_ratios_paired_by_block(
        cells["far"], cells["near"], ["host", "configuration", "point"]
    )
    return ((found["low"] <= FAR) & (found["high"] >= FAR)).to_numpy()


def analyse_all_studies(noise: float, dropped: int, transform: str) -> Iterator[str]:
    """Yield the coverage of all pairs of a factor, of effects, and of remote against local."""
    text = f"noise {noise:.0%}, {NODES} x {NODES} x 3"
    text += f" less {dropped}" if dropped else ""
    text += ", scale chosen" if transform == "better" else ", logarithms"
    random = random_of_line(text)
    names = (
        "pairs of levels, all at once",
        "effects of levels, one by one",
        "local against remote",
    )
    held: dict[str, list[float]] = {name: [] for name in names}
    rows = [(i, j, k) for k in range(3) for i in range(NODES) for j in range(NODES)]
    plan = pd.DataFrame(rows, columns=["initiator", "target", "replicate"])
    speed = 1.0 + 0.1 * plan["initiator"]
    local = plan["initiator"] == plan["target"]
    # There is no interaction, since in unbalanced data it would change the means of levels.
    flat = TRUE * speed.to_numpy()
    matrix = flat * np.where(local, 1.0, FAR)
    for _ in range(SLOW):
        kept = np.sort(random.choice(len(plan), len(plan) - dropped, replace=False))
        errors = np.exp(random.normal(0.0, noise, len(plan)))
        for values, wanted in ((flat, names[:2]), (matrix, names[2:])):
            frame = plan.assign(value=values * errors).iloc[kept]
            found = analyse_variance(
                frame, "value", ["initiator", "target"], "replicate", transform
            )
            for name in wanted:
                held[name].append(_HELD[name](found, local.iloc[kept], noise))
    for name in names:
        yield shown(f"{name}, {text}", float(np.mean(held[name])), SLOW)


def centre(value: float, noise: float, logs: bool) -> float:
    """Return the estimated quantity: the median on logarithms, otherwise the higher mean."""
    return float(np.log(value)) if logs else value * float(np.exp(noise**2 / 2.0))


def pairs_held(found: AnovaResult, _: pd.Series, noise: float) -> bool:
    """Return whether all intervals of pairs of initiators hold their true values."""
    logs = found.transform == "log"
    true = [centre(TRUE * (1.0 + 0.1 * node), noise, logs) for node in range(NODES)]
    pairs = [pair for pair in found.contrasts if pair.factor == "initiator"]
    assert len(pairs) == NODES * (NODES - 1) // 2
    return all(
        pair.difference.low
        <= true[int(pair.level)] - true[int(pair.against)]
        <= pair.difference.high
        for pair in pairs
    )


def effects_held(found: AnovaResult, _: pd.Series, noise: float) -> float:
    """Return the share of the initiators' effects whose interval holds the true effect."""
    logs = found.transform == "log"
    true = np.array([centre(TRUE * (1.0 + 0.1 * node), noise, logs) for node in range(NODES)])
    intervals = [one.effect for one in found.effects if one.factor == "initiator"]
    truth = zip(intervals, true - true.mean(), strict=True)
    return float(np.mean([one.low <= value <= one.high for one, value in truth]))


def remote_held(found: AnovaResult, local: pd.Series, noise: float) -> bool:
    """Return whether the interval of remote minus local holds the true difference."""
    logs = found.transform == "log"
    near = [centre(TRUE * (1.0 + 0.1 * node), noise, logs) for node in range(NODES)]
    far = [centre(FAR * TRUE * (1.0 + 0.1 * node), noise, logs) for node in range(NODES)]
    groups = np.where(local, "local", "remote").tolist()
    contrast = compare_groups_of_cells(found.analysed, groups, ("remote", "local"), "relation")
    true = float(np.mean(far) - np.mean(near))
    return bool(contrast.difference.low <= true <= contrast.difference.high)


_HELD = {
    "pairs of levels, all at once": pairs_held,
    "effects of levels, one by one": effects_held,
    "local against remote": remote_held,
}


PARTS = {"coverage": compare}

"""Summarise the cells of the tidy table: median, 95 % interval, n, outliers, and ratios of cells.

A cell is one metric of one load of one point of one experiment on one host in one configuration.
The replicates of a cell are the sample. Several loads of one point can have the same name, such as
a latency load on each of eight cores. The initiator and the target distinguish loads with the same
name.

Outliers are the replicates that do not count for the interval (see `estimates`). The summary marks
outliers but does not remove them, since what disturbs a machine is a property of the machine.

Replicate k of every point is measured before replicate k + 1 of any point, so all measurements of
one block are made in the same hours. In the ratio of two measurements of one block, the drift
between blocks cancels out. The interval of a ratio follows from the scatter of the blocks' ratios.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.records.record_format import FAILED, VALID
from chaosity.statistics.estimates import (
    FEWEST_REPLICATES_TO_FIND_DISTURBED,
    Estimate,
    Ratio,
    ReplicateNoise,
    VariancePrior,
    estimate_noise,
    fit_priors_of_kinds,
    t_interval,
)
from chaosity.store.measurements import (
    CELL_COLUMNS,
    LOAD_COLUMNS,
    REPLICATE_COLUMNS,
    Measurements,
    Table,
    as_measurements,
    disturbed_mask,
    less_is_better,
)
from chaosity.store.tidy_table_from_records import MISSING
from chaosity.units import format_percent, format_quantity

# Status of a cell whose replicates are valid but have no value, because the metric is optional.
UNMEASURED = "unmeasured"

# Cells with equal values in these columns scatter similarly, so they share a prior variance.
KIND_COLUMNS = ("host", "configuration", "experiment", "load", "benchmark", "kernel", "metric")
# Columns that have the prior of the row's cell, see `VariancePrior`.
PRIOR_COLUMNS = ("prior_freedom", "prior_variance", "prior_cells")


def summarise_cells(measurements: Table, by: Sequence[str] = CELL_COLUMNS) -> pd.DataFrame:
    """Return the summary of each cell, in the order in which the cells first appear.

    Args:
        measurements: all rows of the cells. If the columns that `with_variance_priors` adds are
            missing, the priors are estimated from the given cells.
        by: columns that identify a cell; rows with a missing value in such a column form a cell
            too.

    Returns:
        One row for each cell. The columns that describe the cell come from the first row of the
        cell, except `label` (the first label that is not null) and `file_backed` (true if any row
        has true). The other columns are:

        - `n`, `n_failed`, `n_missing`: number of valid, failed and missing replicates; - `median`
        with 95 % interval `low`, `high`; `minimum`, `maximum`: in the metric's unit. At n = 1 the
        interval follows from the prior alone; without a prior `low` and `high` are NaN; -
        `counted`, `mean`, `variance`, `freedom`: the noise from which the interval follows, see
        `ReplicateNoise`. If all values are above 0 (`is_positive`), mean and variance are those of
        logarithms. `own_variance` is the variance before moderation; - `prior_variance`,
        `prior_freedom`, `prior_cells`: the prior that moderated the variance,
          see `VariancePrior`; NaN, 0 and 0 if the cell has no prior or contradicts it;
        - `standard_deviation`: NaN below n = 2, because one value does not show the spread; -
        `precision`: half the interval's width as a share of the median, NaN without an interval; -
        `outliers`: number of outliers among the replicates; NA below n = 3 or without a prior; -
        `status`: "valid" if a replicate has a value; else "failed" if a replicate failed; else
          "unmeasured" if a replicate has a reason for having no value; else "missing";
        - `reason`: reason of the first failed replicate, or else of the first without a value.
    """
    tidy = as_measurements(measurements).rows
    sample = _replicates_of_cells(tidy, by)
    codes, valid, noise, prior = sample.codes, sample.valid, sample.noise, sample.prior
    number = len(sample.first_rows)
    columns = [column for column in tidy.columns if column not in REPLICATE_COLUMNS]
    cells = tidy[columns].iloc[sample.first_rows].reset_index(drop=True)
    # The rows of a cell can differ in label, and in whether a file replaces a drive. The cell gets
    # the first label, and counts as file-backed if any of its rows is.
    if "label" in tidy:
        cells["label"] = tidy["label"].groupby(codes).first().reindex(range(number))
    if "file_backed" in tidy:
        cells["file_backed"] = tidy["file_backed"].groupby(codes).any().to_numpy(dtype=bool)

    status = tidy["status"].to_numpy(dtype=object)
    own = pd.Series(sample.values).groupby(codes)
    n, median = np.bincount(codes[valid], minlength=number), own.median()
    low, high = t_interval(
        noise.mean, noise.variance, noise.freedom, noise.n, median, sample.is_positive
    )
    cells["n"] = n
    cells["n_failed"] = np.bincount(codes[status == FAILED], minlength=number)
    cells["n_missing"] = np.bincount(codes[status == MISSING], minlength=number)
    cells["median"] = median
    cells["low"], cells["high"] = low, high
    cells["counted"], cells["is_positive"] = noise.n, sample.is_positive
    for name in ("mean", "own_variance", "variance", "freedom"):
        cells[name] = getattr(noise, name)
    for name, without in (("variance", np.nan), ("freedom", 0.0), ("cells", 0.0)):
        cells[f"prior_{name}"] = np.where(noise.moderated, getattr(prior, name), without)
    cells["prior_cells"] = cells["prior_cells"].astype(int)
    cells["minimum"], cells["maximum"] = own.min(), own.max()
    cells["standard_deviation"] = own.std()
    cells["precision"] = (high - low) / (2.0 * median.abs())
    counts = pd.array(n - noise.n, dtype="Int64")
    counts[(n < FEWEST_REPLICATES_TO_FIND_DISTURBED) | (np.asarray(prior.cells) == 0)] = pd.NA
    cells["outliers"] = counts
    without = (status == VALID) & ~valid
    some_without = np.bincount(codes[without], minlength=number) > 0
    cells["status"] = np.select(
        [n > 0, cells["n_failed"] > 0, some_without], [VALID, FAILED, UNMEASURED], MISSING
    )
    reasons: list[str | None] = [None] * number
    texts = tidy["reason"].to_numpy(dtype=object)
    for rows in (status == FAILED, without):
        for code, reason in zip(codes[rows], texts[rows], strict=True):
            reasons[code] = reasons[code] or (reason if isinstance(reason, str) else None)
    cells["reason"] = reasons
    return cells


def with_variance_priors(measurements: Measurements) -> Measurements:
    """Return the rows with the prior of each row's cell, estimated from all cells of each kind.

    So the interval of a cell does not depend on which other cells are selected later.
    """
    sample = _replicates_of_cells(
        measurements.rows.drop(columns=[*PRIOR_COLUMNS], errors="ignore"), CELL_COLUMNS
    )
    columns = zip(PRIOR_COLUMNS, vars(sample.prior).values(), strict=True)
    return measurements.with_columns(**{name: own[sample.codes] for name, own in columns})


def replace_values_and_drop_priors(rows: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Return rows of the tidy table with new values in the column `value`.

    The columns of the priors are dropped, because the priors were estimated from the old values.
    """
    return rows.drop(columns=[*PRIOR_COLUMNS], errors="ignore").assign(value=values)


def compute_outlier_mask(measurements: Table) -> pd.Series:
    """Return for each row whether it is an outlier, which does not count for the interval."""
    tidy = as_measurements(measurements).rows
    sample = _replicates_of_cells(tidy, CELL_COLUMNS)
    outside = np.full(len(tidy), False)
    outside[sample.valid] = ~sample.noise.counted
    return pd.Series(outside, tidy.index, name="outlier")


class _ReplicatesOfCells(NamedTuple):
    """The values of each cell's replicates, and their noise."""

    codes: NDArray[np.intp]  # number of each row's cell; cells are numbered as they appear
    first_rows: NDArray[np.intp]  # the first row of each cell
    values: NDArray[np.float64]  # value of each row, NaN if the row is not valid
    valid: NDArray[np.bool_]  # whether each row has a value
    is_positive: NDArray[np.bool_]  # whether a cell has values and all are above 0
    prior: VariancePrior  # the prior of each cell
    noise: ReplicateNoise  # noise of each cell; noise of logarithms where `is_positive`


def _replicates_of_cells(tidy: pd.DataFrame, by: Sequence[str]) -> _ReplicatesOfCells:
    """Return the sample with priors from the rows' columns, or else estimated from the rows."""
    groups = tidy.groupby(list(by), sort=False, dropna=False, observed=True)
    # pandas may number a group with a null last. Numbers in the order of first appearance keep the
    # rows of a table in a readable order.
    codes = pd.factorize(groups.ngroup().to_numpy())[0].astype(np.intp)
    first_rows = np.unique(codes, return_index=True)[1]
    number = len(first_rows)
    values = tidy["value"].to_numpy(dtype=float, na_value=np.nan)
    valid = (tidy["status"].to_numpy(dtype=object) == VALID) & ~np.isnan(values)
    values = np.where(valid, values, np.nan)
    own, scaled = codes[valid], values[valid]
    is_positive = np.bincount(own, minlength=number) > 0
    is_positive[own[scaled <= 0.0]] = False
    # A ratio that is 1 in each replicate is a value divided by itself. The ratio of a value to
    # itself does not scatter, so it gets no prior.
    moderable = is_positive & (np.bincount(own, scaled != 1.0, number) > 0)
    if not set(CELL_COLUMNS) <= set(by) and set(CELL_COLUMNS) <= set(
        tidy.columns
    ):  # groups of several cells
        of_rows = tidy.groupby(list(CELL_COLUMNS), dropna=False, observed=True).ngroup()
        moderable &= (of_rows.groupby(codes).nunique() == 1).to_numpy(dtype=bool)
    scaled = np.where(is_positive[own], np.log(np.where(scaled > 0.0, scaled, 1.0)), scaled)
    cells = tidy.iloc[first_rows]
    if set(PRIOR_COLUMNS) <= set(tidy.columns):
        freedom, variance, known = (cells[name].to_numpy(dtype=float) for name in PRIOR_COLUMNS)
        prior = VariancePrior(
            np.where(moderable, freedom, 0.0), variance, np.where(moderable, known, 0.0)
        )
    else:
        kind = [column for column in KIND_COLUMNS if column in cells]
        kinds = cells.groupby(kind, dropna=False, observed=True).ngroup().to_numpy(np.intp)
        disturbed = disturbed_mask(tidy).to_numpy()[valid]
        prior = _fit_priors(scaled, own, np.where(moderable, kinds, -1), disturbed)
    noise = estimate_noise(scaled, own, number, prior)
    return _ReplicatesOfCells(codes, first_rows, values, valid, is_positive, prior, noise)


def _fit_priors(
    values: NDArray[np.float64],
    cells: NDArray[np.intp],
    kinds: NDArray[np.intp],
    disturbed: NDArray[np.bool_],
) -> VariancePrior:
    """Return the prior of each cell, see `fit_priors_of_kinds`.

    A run with a budget repeats points with unexpected values, so half of the cells with two
    replicates may have a disturbed replicate. Disturbed replicates do not count for the prior,
    because they do not show how much undisturbed replicates scatter.
    """
    prior = fit_priors_of_kinds(values[~disturbed], cells[~disturbed], kinds)
    if not disturbed.any():
        return prior
    with_disturbed = fit_priors_of_kinds(values, cells, kinds)
    is_quiet = np.bincount(cells[~disturbed], minlength=len(kinds)) > 0
    both = zip(vars(prior).values(), vars(with_disturbed).values(), strict=True)
    return VariancePrior(*(np.where(is_quiet, own, other) for own, other in both))


_BLOCK_COLUMNS = ("host", "configuration", "replicate")
# Two loads with the same values in these columns are the same load.
_COLUMNS_OF_SAME_LOAD = (
    *("host", "configuration", "load", "benchmark", "kernel"),
    *("initiator", "target", "metric", "levels"),
)
# The limit for the latency of all cores together, divided by the latency of one core alone. At
# sizes at which cores hardly share a cache, this ratio is within about 5 % of 1, by the noise of
# the published sweep (document 003, one run, eight cores, 2 to 64 MB). The limit is 1.5 times as
# far from 1.
DIVERGING_RATIO = 1.075
# The limit for the latency of a core divided by the latency of the other cores of its node. In the
# published sweep (document 003) this ratio is within 1 % of 1 while each core runs alone. While all
# cores run, slow cores have 1.26 to 1.30 times the latency of the others.
SLOW_INITIATOR_RATIO = 1.1
# Columns whose values are equal for both latencies of a pair, measured together and alone.
_PAIR_COLUMNS = ["host", "configuration", "initiator", "target", "x", "replicate"]
# Columns of a summary that a comparison has twice: before and after a component's change.
_ESTIMATE_COLUMNS = ("median", "low", "high", "n")


def summarise_cell_ratios_paired_by_block(
    numerator: Table, denominator: Table, on: Sequence[str]
) -> pd.DataFrame:
    """Divide the cells of one selection by their partners in another, within each replicate block.

    Args:
        numerator: the selection that is divided; the ratios get its columns.
        denominator: the selection with the partners; of several partners of a cell, the geometric
            mean is used.
        on: columns whose values are equal in a cell and its partners; `replicate` is added.

    Returns:
        The table of `summarise_cells` for the ratios (no unit), without cells that have no partner.
    """
    keys = [*on, "replicate"]
    above, below = (as_measurements(side).valid_rows().rows for side in (numerator, denominator))
    below = below.assign(_log=np.log(below["value"].to_numpy(dtype=float)))
    partners = below.groupby(keys, dropna=False)["_log"].mean().reset_index()
    # pandas drops the type of a key column that has no value, such as the column `kernel` of loads
    # without a kernel.
    partners = partners.astype({key: above.dtypes[key] for key in keys})
    pairs = above.merge(partners, on=keys, how="inner")
    ratios = pairs["value"] / np.exp(pairs.pop("_log").to_numpy(dtype=float))
    return summarise_cells(Measurements(replace_values_and_drop_priors(pairs, ratios)))


def estimate_group_ratio_paired_by_block(numerator: Table, denominator: Table) -> Estimate:
    """Return the typical value of one group of cells divided by the typical value of another.

    For example, the numerator has cells with memory of another package, and the denominator has
    cells with local memory. The typical value of a block is the geometric mean over the group's
    cells. A cell without a value in a block would shift the mean of this block, so only cells with
    a value in every block count. If no cell has a value in every block, all cells count. n is the
    number of blocks that both groups have.
    """
    return Estimate.of_values(np.exp(_block_logs(numerator) - _block_logs(denominator)))


def _block_logs(group: Table) -> pd.Series:
    """Return block -> mean logarithm over the cells that have a value in every block."""
    rows = as_measurements(group).valid_rows().rows
    blocks = rows.groupby(list(_BLOCK_COLUMNS), dropna=False).ngroups
    seen = rows.groupby(list(CELL_COLUMNS), dropna=False)["value"].transform("size")
    complete = rows[seen == blocks]
    rows = rows if complete.empty else complete
    logs = rows.assign(value=np.log(rows["value"].to_numpy(dtype=float)))
    return logs.groupby(list(_BLOCK_COLUMNS), dropna=False)["value"].mean()


def summarise_corun_to_alone_ratios(measurements: Measurements) -> pd.DataFrame:
    """Compare each co-running load with the same load alone.

    The value alone comes from the same replicate block and, if possible, from the same experiment,
    since other experiments may measure for a longer or shorter time. Only rates and times are
    compared. Shares of pages that a search found are not compared, since a share is neither better
    nor worse.

    Returns:
        The table of `summarise_cells` for the ratios: 1 means no loss. A bandwidth with the ratio
        0.6 has lost 40 %. The table is empty if no load was measured both alone and co-running.
    """
    performance = measurements.performance_rows()
    same_levels = performance.with_columns(levels=performance.rows["load_parameters"])
    alone, corunning = same_levels.single_load_rows(), same_levels.rows_of_corunning_loads()
    near = summarise_cell_ratios_paired_by_block(
        corunning, alone, ["experiment", *_COLUMNS_OF_SAME_LOAD]
    )
    found = pd.MultiIndex.from_frame(near[[*CELL_COLUMNS]])
    missing = ~pd.MultiIndex.from_frame(corunning.rows[[*CELL_COLUMNS]]).isin(found)
    far = summarise_cell_ratios_paired_by_block(
        corunning.select(missing), alone, _COLUMNS_OF_SAME_LOAD
    )
    parts = [part for part in (near, far) if not part.empty]
    return pd.concat(parts, ignore_index=True) if parts else near


@dataclass(frozen=True)
class InitiatorSlowerThanOthersOfNode:
    """An initiator that is slower than the other initiators of its node."""

    initiator: str  # name of the initiator
    nodes: str  # node of the initiator, as a Linux list
    # Latency of the initiator divided by the geometric mean latency of the node's other initiators,
    # while all run at the same time. Smaller sizes than `LatencyTogetherAndAlone.start` do not
    # count.
    together: Estimate
    alone: float  # the same ratio if each initiator runs alone; NaN if not measured


@dataclass(frozen=True)
class LatencyTogetherAndAlone:
    """By how much latency differs between loads that run together and each load alone."""

    # Size -> latency of loads together divided by latency alone, in ascending order of size.
    ratios: dict[float, Estimate]
    # The smallest size from which on every ratio is above DIVERGING_RATIO; None if there is none.
    start: float | None
    # Initiators that are slower than others of their node, the slowest first.
    slow: tuple[InitiatorSlowerThanOthersOfNode, ...]
    compared: int  # number of initiators that were compared with other initiators of their node


def compare_latency_together_and_alone(
    measurements: Table, together: str, alone: str
) -> LatencyTogetherAndAlone:
    """Compare the latencies of loads together and alone, two levels of a factor, at each size.

    The two latencies of a pair have the same initiator, target, size and replicate block. The
    typical ratio of a size is the geometric mean over its pairs. The interval follows from the
    means of the blocks.

    Args:
        measurements: values of a metric in which less is better, with the additional columns `x`
            (the size) and `level` (the level of the factor).
        together: the level of loads that were measured at the same time.
        alone: the level of loads that were measured one after the other.
    """
    valid = as_measurements(measurements).valid_rows().rows
    known = valid[valid["x"].notna()]
    known = known.assign(log=np.log(known["value"].to_numpy(dtype=float)))
    both, single = (known[known["level"] == level] for level in (together, alone))
    ratios = _ratio_at_each_size(both, single)
    large = itertools.takewhile(
        lambda size: ratios[size].median > DIVERGING_RATIO, reversed(ratios)
    )
    start = min(large, default=None)
    if start is None:
        return LatencyTogetherAndAlone(ratios, None, (), 0)
    to_others, alone_to_others = (
        _log_ratios_to_others_of_node(side[side["x"] >= start]) for side in (both, single)
    )
    slow = []
    for initiator, blocks in to_others.items():
        ratio = Estimate.of_values(np.exp(blocks))
        if ratio.median > SLOW_INITIATOR_RATIO and (ratio.low is None or ratio.low > 1.0):
            own = float(np.exp(np.median(alone_to_others.get(initiator, np.nan))))
            slow.append(InitiatorSlowerThanOthersOfNode(*initiator, ratio, own))
    slow.sort(key=lambda initiator: initiator.together.median, reverse=True)
    return LatencyTogetherAndAlone(ratios, start, tuple(slow), len(to_others))


def _ratio_at_each_size(together: pd.DataFrame, alone: pd.DataFrame) -> dict[float, Estimate]:
    """Return size -> geometric mean ratio over the pairs of this size, in ascending order."""
    above, below = (side.groupby(_PAIR_COLUMNS)["log"].mean() for side in (together, alone))
    pairs = (above - below).dropna()
    blocks = pairs.groupby(["x", "host", "configuration", "replicate"]).mean()
    sizes = blocks.groupby("x")
    return {float(x): Estimate.of_values(np.exp(own)) for x, own in sizes}  # type: ignore


def _log_ratios_to_others_of_node(rows: pd.DataFrame) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return (initiator, nodes) -> for each block, log ratio to the node's other initiators."""
    place = ["host", "configuration", "initiator_nodes", "target", "x", "replicate"]
    logs = rows.groupby([*place, "initiator"])["log"].mean().reset_index()
    sums, sizes = (logs.groupby(place)["log"].transform(name) for name in ("sum", "size"))
    whole = logs.groupby("initiator_nodes")["initiator"].transform("nunique")
    logs["ratio"] = logs["log"] - (sums - logs["log"]) / (sizes - 1)
    compared = logs[(sizes == whole) & (whole > 1)]
    keys = ["initiator", "initiator_nodes"]
    blocks = compared.groupby([*keys, "replicate"])["ratio"].mean()
    return {place: own.to_numpy(float) for place, own in blocks.groupby(keys)}  # type: ignore


def slowdown_sentences(measurements: Measurements) -> Iterator[str]:
    """Yield a sentence for each co-running load that says its slowdown."""
    table = measurements.rows
    medians = summarise_cells(measurements).set_index(["point", *LOAD_COLUMNS])["median"]
    for _, cost in summarise_corun_to_alone_ratios(measurements).iterrows():
        metric, ratio = cost["metric"], cost["median"]
        loads = table[table["point"] == cost["point"]]
        others = ", ".join(sorted(set(loads["initiator"]) - {cost["initiator"]}))
        value = medians[(cost["point"], *(cost[column] for column in LOAD_COLUMNS))]
        effect = f"loses {format_percent(1.0 - ratio)}"
        if less_is_better(metric) or ratio > 1.0:
            effect = f"has {ratio:.2f} times its value alone"
        own, alone = (format_quantity(metric, each) for each in (value, value / ratio))
        yield f"{cost['initiator']} {effect} with {others} co-running: {own}, alone {alone}."


def compare_neighbouring_periods(history: Measurements) -> pd.DataFrame:
    """Compare each cell of each point in successive periods of a history.

    Returns:
        One row for each cell and change of its components, the newest change last. The columns are
        those of the cell, `era` (the number of the later period), `changed` (JSON: component ->
        [start of its earlier state, start of its later state]), `comparable` (whether both periods
        have the same request fingerprint), `median_before`, `low_before`, `high_before`,
        `n_before`, the four columns with `_after`, and `ratio`, `ratio_low`, `ratio_high`.
    """
    found = []
    valid = history.performance_rows().valid_rows_with_value()
    keys = [*CELL_COLUMNS, "era"]
    cells = summarise_cells(valid, keys).set_index(keys)
    for _, cell in valid.groups_by_columns(CELL_COLUMNS):
        for (_, before), (_, after) in itertools.pairwise(cell.rows.groupby("era", sort=True)):
            old, new = (json.loads(own["components"].iloc[-1]) for own in (before, after))
            changed = {c: [old.get(c), new[c]] for c in new if old.get(c) != new[c]}
            of_cell = [tuple(own[keys].iloc[0]) for own in (before, after)]
            old_cell, new_cell = (cells.loc[key] for key in of_cell)
            ratio = Ratio.of_cells(new_cell, old_cell)
            found.append(
                [
                    *(*of_cell[1], json.dumps(changed, sort_keys=True)),
                    len({*before["asked"], *after["asked"]}) == 1,
                    *(own[name] for own in (old_cell, new_cell) for name in _ESTIMATE_COLUMNS),
                    *(ratio.ratio, ratio.low, ratio.high),
                ]
            )
    columns = [
        *(*CELL_COLUMNS, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE_COLUMNS),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    return pd.DataFrame(found, columns=columns)

"""Decide which anomalies of a host are findings, and which are only suspicions."""

from __future__ import annotations

from dataclasses import replace

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, advice_text
from chaosity.anomalies.cell_log_scores import LEVEL
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.store.measurements import POINT, Measurements, disturbed_mask
from chaosity.text_templates import write_text

# Kinds in which a value is compared with a single better one, and those in which with a group.
_AGAINST_ONE_CELL = (AnomalyKind.REMOTE_BETTER, AnomalyKind.ADDING_DRIVES)
_AGAINST_GROUP = (AnomalyKind.SLOW_COMPONENT, AnomalyKind.SLOW_PATH)
# If fewer than half of the replicates are disturbed or imprecise, the others decide the median.
_HALF = 0.5
# Other programs and slow clocks take half of the speed of a single run, and seldom more.
_DISTURBANCE = 0.6
# An interval of this half width, as a share of the median, includes zero.
_USELESS_PRECISION = 1.0


def add_doubt(
    anomaly: Anomaly, tests_count: int, measurements: Measurements, *, unusable: bool
) -> Anomaly:
    """Return the anomaly with its certainty over all tests of the host, and its doubt if any.

    Args:
        anomaly: an anomaly, with the p-value within its own test.
        tests_count: number of tests of the host; a finding is clear over all of them (Bonferroni).
        measurements: valid rows of the host.
        unusable: whether the results of the host are useless.
    """
    p, low, doubt = min(1.0, anomaly.p_value * tests_count), anomaly.loss_percent_low, ""
    if unusable:
        doubt = "The results of this host are unusable."
    elif low is not None and low <= 0.0:
        doubt = "The interval of the loss includes zero."
    elif p >= LEVEL:
        doubt = write_text("anomalies", "doubtful_p", p=p, tests=tests_count, level=LEVEL)
    elif _share_with_remarks(anomaly, measurements) >= _HALF:
        doubt = "At least half of its values are from disturbed or imprecise measurements."
    else:
        doubt = doubt_of_single_run(anomaly)
    return with_doubt(replace(anomaly, confidence=min(anomaly.confidence, 1.0 - p)), doubt)


def with_doubt(anomaly: Anomaly, doubt: str) -> Anomaly:
    """Return the anomaly as a suspicion, if there is a doubt."""
    if not doubt:
        return anomaly
    advice = f"Measure it again before anything else. {anomaly.advice}"
    return replace(anomaly, doubt=doubt, advice=advice)


def doubt_of_single_run(anomaly: Anomaly) -> str:
    """Return why one run of one cell shows no fault, as a sentence; empty if it shows one."""
    one_value = anomaly.kind in _AGAINST_ONE_CELL or (
        anomaly.kind in _AGAINST_GROUP and len(anomaly.cells) == 1
    )
    is_doubtful = one_value and anomaly.loss_as_share_of_better_value < _DISTURBANCE
    return write_text("anomalies", "single_run") if is_doubtful and anomaly.n == 1 else ""


def _share_with_remarks(anomaly: Anomaly, measurements: Measurements) -> float:
    """Return the share of the anomaly's cells with a median that disturbed replicates may decide.

    A cell can have several points, such as one alone and one with all cores; the worst one counts.
    """
    rows = anomaly.rows_of_cells(measurements)
    remarked = rows["remarks"].notna()
    of_points = remarked.groupby([rows[name] for name in ("initiator", "target", "point")]).mean()
    worst = of_points.groupby(level=[0, 1]).max()
    return float((worst >= _HALF).sum() / max(1, len(worst)))


def without_disturbed_replicates(measurements: Measurements) -> Measurements:
    """Return the valid rows without replicates that other programs or a slow clock disturbed.

    A load keeps its disturbed replicates if it has no other one.
    """
    rows, disturbed = measurements.rows, disturbed_mask(measurements.rows)
    loads = [rows[name] for name in (*POINT, "load", "metric")]
    return measurements.select(~disturbed | disturbed.groupby(loads, dropna=False).transform("all"))


def reason_for_unusable_results(measurements: Measurements) -> str:
    """Return why results are useless and what to do, as sentences; empty if they are not.

    `measurements` are valid rows of rates and times. Disturbed replicates count as such, and not
    for the width of the intervals where there are others.
    """
    replicates = measurements.rows.drop_duplicates([*POINT, "replicate"])
    disturbed = disturbed_mask(replicates).mean()
    precision = summarise_cells(without_disturbed_replicates(measurements))["precision"].dropna()
    wide = (precision > _USELESS_PRECISION).mean() if len(precision) else 0.0
    if max(disturbed, wide) < _HALF:
        return ""
    shares = {"disturbed": disturbed if disturbed >= _HALF else None, "wide": wide}
    return write_text("anomalies", "unusable", **shares, remedy=advice_text("unusable"))

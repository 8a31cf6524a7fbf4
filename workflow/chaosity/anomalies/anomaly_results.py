"""Classes for results: an anomaly, and the findings and suspicions of a matrix or a host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from pydantic import ConfigDict, PlainSerializer, TypeAdapter, computed_field
from pydantic.dataclasses import dataclass

from chaosity.anomalies.cell_log_scores import HOST_FALSE_ALARM_LEVEL
from chaosity.place_names import (
    PlaceName,
    node_name,
    parse_place_name,
    place_in_words,
    places_in_words,
)
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.store.measurements import (
    POINT_COLUMNS,
    SLICE_COLUMNS,
    Measurements,
    disturbed_mask,
    less_is_better,
)
from chaosity.text_templates import text_of_macro, texts_of_yaml_file
from chaosity.units import format_quantity


class AnomalyKind(StrEnum):
    """The kinds of anomalies, with their names in findings.json."""

    SLOW_COMPONENT = "slow_component"
    SLOW_PATH = "slow_path"
    REMOTE_BETTER = "remote_better_than_local"
    ADDING_DRIVES = "adding_drives_loses_bandwidth"
    CONTENTION = "contention_within_node"
    INVERSION = "inversion_with_size"
    SLIT_MISMATCH = "slit_mismatch"


CellNames = tuple[int | str, int | str]  # initiator and target
SliceKey = Mapping[str, str | None]  # column of the tidy table -> value that all rows share


# Attribute -> its name in JSON, if both names differ.
_JSON_NAME_OF_ATTRIBUTE = {"compared_with": "siblings", "groups": "classes"}
_PYDANTIC_SETTINGS = ConfigDict(
    alias_generator=lambda name: _JSON_NAME_OF_ATTRIBUTE.get(name, name), populate_by_name=True
)


def _json_number_with_digits(most: int) -> PlainSerializer:
    """Return a serializer to JSON that rounds to `most` digits, and writes inf and NaN as null."""

    def _rounded(value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return float(f"{value:.{most}g}") or 0.0  # no -0.0

    return PlainSerializer(_rounded, when_used="json")


_SevenDigits = Annotated[float, _json_number_with_digits(7)]
_FourDigits = Annotated[float, _json_number_with_digits(4)]
_FourDigitsOrNone = Annotated[float | None, _json_number_with_digits(4)]
_ThreeDigitsOrNone = Annotated[float | None, _json_number_with_digits(3)]


class _JsonResult:
    """A dataclass that pydantic checks, reads from JSON and writes as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values; an unknown value is null."""
        adapter: TypeAdapter[Any] = TypeAdapter(type(self))
        found: dict[str, Any] = adapter.dump_python(self, mode="json", by_alias=True)
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the object from the JSON values that its `to_json` returned."""
        return TypeAdapter(cls).validate_python(values)


@dataclass(frozen=True, kw_only=True, config=_PYDANTIC_SETTINGS)
class Anomaly(_JsonResult):
    """A loss that is statistically clear and large enough to matter, and its evidence."""

    kind: str  # an `AnomalyKind`
    # initiator, target: the place of the loss, as node numbers or names of places. None if several
    # initiators or several targets have the loss.
    initiator: int | str | None
    target: int | str | None
    # Names of the suspected components in the component files (node3, package0). A path has the
    # form `node1->node3`.
    components: tuple[str, ...]
    metric: str  # name of the metric of `observed` and `expected`
    observed: _SevenDigits  # the measured median, in the metric's unit
    expected: _SevenDigits  # the value that follows from comparable cells, in the metric's unit
    loss_percent: _FourDigits  # how much worse `observed` is, in per cent of `expected`
    # loss_percent_low, loss_percent_high: ends of the 95 % interval of the loss; None if unknown.
    loss_percent_low: _FourDigitsOrNone
    loss_percent_high: _FourDigitsOrNone
    # Probability, 0 to 1, that the loss is not noise, adjusted for the number of comparisons: all
    # comparisons of the matrix, or of all tests of the host.
    confidence: Annotated[float, _json_number_with_digits(6)]
    p_value: Annotated[float, _json_number_with_digits(3)] = (
        1.0  # probability that noise alone shows such a loss in any comparison of the same test
    )
    n: int  # replicates of each slow cell; the smallest number if cells differ
    compared_with: str  # text that describes the comparable cells
    sentence: str  # what is wrong, in one sentence
    advice: str  # text on what to examine on the machine
    cells: tuple[CellNames, ...] = ()  # (initiator, target) of each cell with the loss
    # The slice of the tidy table that has the cells: column (experiment, kernel, ...) -> value.
    # `where` is empty if the matrix was given as a bare table of values.
    where: SliceKey = field(default_factory=dict)
    also: tuple[str, ...] = ()  # sentences with further evidence for the same fault
    doubt: str = ""  # why the anomaly is only a suspicion, as a sentence; empty for a finding

    @property
    def loss_as_share_of_better_value(self) -> float:
        """The loss as a share of the better value, so that times and rates are comparable."""
        share = self.loss_percent / 100.0
        return share / (1.0 + share) if less_is_better(self.metric) else share

    @property
    def is_on_drives(self) -> bool:
        """Return whether the anomaly is about accesses to drives."""
        targets = (parse_place_name(str(target)) for _, target in self.cells)
        return any(target is not None and target.has_drives for target in targets)

    @property
    def heading(self) -> str:
        """A heading that names the suspected component, such as "Slow component: node 3".

        For a path, the heading says who accesses what, because the data of reads and of writes flow
        in opposite directions.
        """
        first, places = self.components[0] if self.components else "", [*self.components]
        source, is_path, sink = first.partition("->")
        if self.kind != AnomalyKind.SLOW_PATH or first.startswith("link "):
            kind = self.kind.replace("_", " ").capitalize().replace("Slit", "SLIT")
            return f"{kind}: {places_in_words(places)}"
        texts = texts_of_yaml_file("anomalies")["headings"]
        if self.is_on_drives:
            if is_path:
                path = texts["drives_of_node"].format(place_in_words(source), place_in_words(sink))
            elif first == self.target and self.initiator is not None:
                reader = place_in_words(self.initiator)
                path = texts["drives"].format(reader, place_in_words(first))
            else:
                slow = places if self.target is None else [str(self.target)]
                drives = places_in_words(map(_drives_of_node, slow))
                return str(texts["slow_together"].format(drives))
        elif is_path:
            path = texts["memory_of_node"].format(place_in_words(source), place_in_words(sink))
            cells = {(_node_name(start), _node_name(end)) for start, end in self.cells}
            path += texts["both_directions"] if (sink, source) in cells else ""
        elif self.initiator is None and self.target is not None:
            path = texts["from_other_nodes"].format(place_in_words(first))
        elif self.target is None and self.initiator is not None:
            path = texts["to_other_nodes"].format(place_in_words(first))
        else:
            path = places_in_words(places)
        return str(texts["slow_path"].format(path))

    @property
    def evidence_sentence(self) -> str:
        """A sentence with the loss, its interval, the confidence and the comparable cells."""
        return text_of_macro("anomalies", "evidence", anomaly=self)

    def rows_of_cells(self, measurements: Measurements) -> pd.DataFrame:
        """Return those rows of a host's table that belong to cells of this anomaly."""
        known = {
            name: self.where[name] for name in SLICE_COLUMNS if self.where.get(name) is not None
        }
        rows = measurements.where(**known).rows
        cells = {(str(initiator), str(target)) for initiator, target in self.cells}
        # A cell of a node matrix is named by node numbers, any other cell by names of places.
        places = rows[["initiator", "target", "initiator_nodes", "target_nodes"]].astype(str)
        own = [bool(cells & {(i, t), (m, n)}) for i, t, m, n in places.itertuples(index=False)]
        return rows[np.array(own, dtype=bool)]

    def worst_point(self, measurements: Measurements) -> tuple[str, str] | None:
        """Return experiment and point of the worst median among the cells of this anomaly.

        None if `measurements` has no valid value of these cells.
        """
        rows = self.rows_of_cells(measurements)
        rows = rows[rows["value"].notna() & (rows["metric"] == self.metric)]
        if rows.empty:
            return None
        by_point = rows.groupby(["experiment", "point"])["value"].median()
        worst: Any = by_point.idxmax() if less_is_better(self.metric) else by_point.idxmin()
        experiment, point = map(str, worst)
        return experiment, point

    def explain_arguments(self, measurements: Measurements) -> tuple[str, ...]:
        """Return arguments of ``chaosity explain`` for the worst value of the anomaly's cells.

        The result is empty if `measurements`, the host's table, has no valid value of these cells.
        """
        if (worst := self.worst_point(measurements)) is None:
            return ()
        experiment, point = worst
        of_this_name = measurements.rows.loc[measurements.rows["point"] == point, "experiment"]
        return (point, "--experiment", experiment) if of_this_name.nunique() > 1 else (point,)


def _node_name(place: int | str) -> str:
    return node_name(place) if isinstance(place, int) else place


def _drives_of_node(name: str) -> str:
    """Return the name of a node's drives for the name of a node, and other names unchanged."""
    place = parse_place_name(name)
    if place is None or place.kind != "node":
        return name
    return str(PlaceName("node_drives", place.indices))


def shared_initiator_and_target(
    cells: Iterable[CellNames],
) -> tuple[int | str | None, int | str | None]:
    """Return the initiator and the target that all cells share; None for one that differs."""
    ends: tuple[set[int | str], ...] = tuple(map(set, zip(*cells, strict=True)))
    initiator, target = (names.pop() if len(names) == 1 else None for names in ends)
    return initiator, target


@dataclass(frozen=True, config=_PYDANTIC_SETTINGS)
class ComparableCells(_JsonResult):
    """Cells that should be equal on a healthy machine because of its structure."""

    name: str  # name of the group, such as "local" or "same package"
    cells: tuple[tuple[int, int], ...]  # (initiator, target) of each cell
    typical: _SevenDigits  # median of the cells' values, in the metric's unit

    @computed_field  # type: ignore[prop-decorator] # as pydantic's manual says
    @property
    def n_cells(self) -> int:
        """The number of cells in the group."""
        return len(self.cells)


def no_problems_text(
    checked: Sequence[str], untested: Sequence[str], detectable_loss_percent: float | None
) -> str:
    """Return sentences for a host without findings: what was tested and what was not.

    `detectable_loss_percent` is the smallest loss that every test detects; None if unknown.
    """
    values = {"checked": checked, "untested": untested, "loss": detectable_loss_percent}
    return text_of_macro("anomalies", "no_problems", **values)


@dataclass(frozen=True, config=_PYDANTIC_SETTINGS)
class Findings(_JsonResult):
    """All findings of a matrix or of a host."""

    metric: str | None  # metric of the matrix; None for a host, which has several metrics
    verdict: str  # the result in one sentence
    structure: str  # text that says which cells should be equal
    # Nodes of each package, which was given or learned; None if no packages explain the values.
    packages: tuple[tuple[int, ...], ...] | None
    # The cell groups of a matrix, the best first; empty for a host.
    groups: tuple[ComparableCells, ...]
    # Anomalies without doubt, the largest first. Anomalies of a matrix are sorted by loss, and
    # anomalies of a host by loss times confidence.
    anomalies: tuple[Anomaly, ...]
    # Smallest loss of a single cell that is detected with a probability of 95 %, in per cent; None
    # if no cell could be compared.
    detectable_loss_percent: _ThreeDigitsOrNone
    noise_percent: (
        _ThreeDigitsOrNone  # standard deviation of one value in per cent; None for a host
    )
    notes: tuple[str, ...] = ()  # what was not tested and why, and which departures are structural
    checked: tuple[str, ...] = ()  # names of the tests that were made
    suspicions: tuple[Anomaly, ...] = ()  # a host's doubtful anomalies, in the order of `anomalies`
    untested: tuple[str, ...] = ()  # kinds of places, such as drives, that no test of a host covers
    unusable: str = ""  # why the results are useless and what to do; empty if they are usable


def advice_text(name: str) -> str:
    """Return the advice for a slow component, a slow path or a kind of finding."""
    return str(texts_of_yaml_file("anomalies")["advice"][name])


def loss_text(metric: str, percent: float) -> str:
    """Return a loss as text with its direction: "12 % less" or "12 % longer"."""
    number = f"{percent:.0f}" if percent >= 9.5 else f"{percent:.1f}"
    return f"{number} % longer" if less_is_better(metric) else f"{number} % less"


def verb_before_value(metric: str) -> str:
    """Return the verb for a metric: a pair of nodes "gets" a bandwidth or "takes" a time."""
    return "takes" if less_is_better(metric) else "gets"


def values_and_loss_text(
    metric: str, observed: float, expected: float, percent: float, between: str = ""
) -> str:
    """Return "30 GB/s instead of 50 GB/s, 40 % less"; `between` is inserted after the values."""
    values = f"{format_quantity(metric, observed)} instead of {format_quantity(metric, expected)}"
    return f"{values}{between}, {loss_text(metric, percent)}"


def shorten_list(items: Sequence[str], most: int) -> list[str]:
    """Return the first `most` items and, as the last item, the number of omitted items."""
    more = len(items) - most
    return [*items[:most], f"{more} more"] if more > 0 else list(items)


# Kinds of anomalies whose expected value is the value of one better cell. For all other kinds, the
# expected value is that of a group of cells.
_KINDS_COMPARED_WITH_ONE_CELL = (AnomalyKind.REMOTE_BETTER, AnomalyKind.ADDING_DRIVES)
_KINDS_COMPARED_WITH_GROUP = (AnomalyKind.SLOW_COMPONENT, AnomalyKind.SLOW_PATH)
# Share of disturbed or imprecise replicates from which on a cell is doubtful. If fewer are, the
# good replicates decide the median.
_LEAST_SHARE_OF_DISTURBED_REPLICATES = 0.5
# Least loss, as a share, that counts as a fault even in a single run, since other programs and slow
# clocks cost a run at most half of its speed.
_LOSS_ABOVE_ANY_DISTURBANCE = 0.6
# Half the width of an interval, as a share of the median, from which on the interval includes zero.
_HALF_WIDTH_OF_USELESS_INTERVAL = 1.0


def adjust_confidence_and_add_doubt(
    anomaly: Anomaly, tests_count: int, measurements: Measurements, *, unusable: bool
) -> Anomaly:
    """Adjust the confidence of an anomaly for all tests of the host, and say why it is doubtful.

    An anomaly is doubtful if its loss is not clear after a correction for all tests of the host
    (Bonferroni), or if its measurements are not reliable. `measurements` has the host's valid rows.
    `unusable` says whether the results of the host are useless.
    """
    p, low, doubt = min(1.0, anomaly.p_value * tests_count), anomaly.loss_percent_low, ""
    if unusable:
        doubt = "The results of this host are unusable."
    elif low is not None and low <= 0.0:
        doubt = "The interval of the loss includes zero."
    elif p >= HOST_FALSE_ALARM_LEVEL:
        doubt = text_of_macro(
            "anomalies", "doubtful_p", p=p, tests=tests_count, level=HOST_FALSE_ALARM_LEVEL
        )
    elif _share_with_remarks(anomaly, measurements) >= _LEAST_SHARE_OF_DISTURBED_REPLICATES:
        doubt = "At least half of its values are from disturbed or imprecise measurements."
    else:
        doubt = doubt_of_single_run(anomaly)
    return with_doubt(replace(anomaly, confidence=min(anomaly.confidence, 1.0 - p)), doubt)


def with_doubt(anomaly: Anomaly, doubt: str) -> Anomaly:
    """Return the anomaly as a suspicion with the given doubt; unchanged if `doubt` is empty."""
    if not doubt:
        return anomaly
    advice = f"Measure it again before anything else. {anomaly.advice}"
    return replace(anomaly, doubt=doubt, advice=advice)


def doubt_of_single_run(anomaly: Anomaly) -> str:
    """Return why an anomaly is doubtful if only a single run of one cell shows it, else ""."""
    one_value = anomaly.kind in _KINDS_COMPARED_WITH_ONE_CELL or (
        anomaly.kind in _KINDS_COMPARED_WITH_GROUP and len(anomaly.cells) == 1
    )
    is_doubtful = one_value and anomaly.loss_as_share_of_better_value < _LOSS_ABOVE_ANY_DISTURBANCE
    return text_of_macro("anomalies", "single_run") if is_doubtful and anomaly.n == 1 else ""


def _share_with_remarks(anomaly: Anomaly, measurements: Measurements) -> float:
    """Return the share of the anomaly's cells with remarks in at least half of their replicates.

    Replicates with remarks may decide the median. A cell can have several points, for example one
    load alone and one with all cores. Of several points, the one with the most remarks counts.
    """
    rows = anomaly.rows_of_cells(measurements)
    remarked = rows["remarks"].notna()
    of_points = remarked.groupby([rows[name] for name in ("initiator", "target", "point")]).mean()
    worst = of_points.groupby(level=[0, 1]).max()
    return float((worst >= _LEAST_SHARE_OF_DISTURBED_REPLICATES).sum() / max(1, len(worst)))


def without_disturbed_replicates(measurements: Measurements) -> Measurements:
    """Return the valid rows without disturbed replicates.

    Other programs or a slow clock disturbed a replicate. If all replicates of a load were
    disturbed, they are kept.
    """
    rows, disturbed = measurements.rows, disturbed_mask(measurements.rows)
    loads = [rows[name] for name in (*POINT_COLUMNS, "load", "metric")]
    return measurements.select(~disturbed | disturbed.groupby(loads, dropna=False).transform("all"))


def reason_for_unusable_results(measurements: Measurements) -> str:
    """Return sentences on why results are useless and what to do; "" if results are usable.

    Results are useless if at least half of the replicates were disturbed, or if for at least half
    of the cells half the width of the interval is as large as the median. Disturbed replicates do
    not count for an interval if the cell has others. `measurements` has valid rows of rates and
    times.
    """
    if not len(measurements):
        return ""
    replicates = measurements.rows.drop_duplicates([*POINT_COLUMNS, "replicate"])
    disturbed = disturbed_mask(replicates).mean()
    precision = summarise_cells(without_disturbed_replicates(measurements))["precision"].dropna()
    wide = (precision > _HALF_WIDTH_OF_USELESS_INTERVAL).mean() if len(precision) else 0.0
    if max(disturbed, wide) < _LEAST_SHARE_OF_DISTURBED_REPLICATES:
        return ""
    shares = {
        "disturbed": disturbed if disturbed >= _LEAST_SHARE_OF_DISTURBED_REPLICATES else None,
        "wide": wide,
    }
    folder = "/".join(map(str, measurements.rows[["host", "configuration"]].iloc[0]))
    remedy = advice_text("unusable").format(folder)
    return text_of_macro("anomalies", "unusable", **shares, remedy=remedy)

"""Results of the analysis: an anomaly, and the findings and suspicions of a matrix or a host."""

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
    """The kinds of anomalies, as in findings.json."""

    SLOW_COMPONENT = "slow_component"
    SLOW_PATH = "slow_path"
    REMOTE_BETTER = "remote_better_than_local"
    ADDING_DRIVES = "adding_drives_loses_bandwidth"
    CONTENTION = "contention_within_node"
    INVERSION = "inversion_with_size"
    SLIT_MISMATCH = "slit_mismatch"


CellNames = tuple[int | str, int | str]  # initiator and target
SliceKey = Mapping[str, str | None]  # column of the tidy table -> its value


# Attribute -> its name in JSON, where the two names differ.
_JSON_NAME_OF_ATTRIBUTE = {"compared_with": "siblings", "groups": "classes"}
_PYDANTIC_SETTINGS = ConfigDict(
    alias_generator=lambda name: _JSON_NAME_OF_ATTRIBUTE.get(name, name), populate_by_name=True
)


def _json_number_with_digits(most: int) -> PlainSerializer:
    """Return a serializer to JSON: numbers get `most` digits; inf and NaN become null."""

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
        """Return the result from the JSON values that `to_json` returned."""
        return TypeAdapter(cls).validate_python(values)


@dataclass(frozen=True, kw_only=True, config=_PYDANTIC_SETTINGS)
class Anomaly(_JsonResult):
    """A loss that is statistically clear and large enough to matter, with the evidence."""

    kind: str  # an `AnomalyKind`
    # initiator, target: where the loss was seen, as a node number or a place name. None if several
    # initiators or several targets are involved.
    initiator: int | str | None
    target: int | str | None
    # Names of the suspected components, as in the component files (node3, package0). A path has the
    # form `node1->node3`.
    components: tuple[str, ...]
    metric: str  # name of the metric of `observed` and `expected`
    observed: _SevenDigits  # the measured median, in the metric's unit
    expected: _SevenDigits  # the value that follows from comparable cells, in the metric's unit
    loss_percent: _FourDigits  # how much worse `observed` is, in per cent of `expected`
    # loss_percent_low, loss_percent_high: ends of the 95 % interval of the loss; None if the
    # interval is unknown.
    loss_percent_low: _FourDigitsOrNone
    loss_percent_high: _FourDigitsOrNone
    # Probability, 0 to 1, that the loss is not noise, adjusted for the number of comparisons. For a
    # host, all comparisons of all its tests count.
    confidence: Annotated[float, _json_number_with_digits(6)]
    p_value: Annotated[float, _json_number_with_digits(3)] = (
        1.0  # probability that noise alone shows such a loss in any comparison of the same test
    )
    n: int  # replicates of each cell behind `observed`; the smallest number if the cells differ
    compared_with: str  # description of the comparable cells
    sentence: str  # what is wrong, in one sentence
    advice: str  # what the reader should check on the machine
    cells: tuple[CellNames, ...] = ()  # (initiator, target) of each explained cell
    # Column -> value of the slice of the tidy table (experiment, kernel, ...) with the cells. Empty
    # for a matrix that was analysed alone.
    where: SliceKey = field(default_factory=dict)
    also: tuple[str, ...] = ()  # sentences with further evidence for the same fault
    doubt: str = ""  # why the anomaly is only a suspicion, as a sentence; empty for a finding

    @property
    def loss_as_share_of_better_value(self) -> float:
        """Loss as a share of the better value, so that times and rates can be sorted together."""
        share = self.loss_percent / 100.0
        return share / (1.0 + share) if less_is_better(self.metric) else share

    @property
    def is_on_drives(self) -> bool:
        """Return whether the anomaly is about accesses to drives."""
        targets = (parse_place_name(str(target)) for _, target in self.cells)
        return any(target is not None and target.has_drives for target in targets)

    @property
    def suspected_words(self) -> str:
        """Heading with the suspected part, such as "Slow component: node 3".

        For a path, the text says who accesses what, because data flows in one direction in reads
        and in the other direction in writes.
        """
        first, places = self.components[0] if self.components else "", [*self.components]
        source, is_path, sink = first.partition("->")
        if self.kind != AnomalyKind.SLOW_PATH or first.startswith("link "):
            kind = self.kind.replace("_", " ").capitalize().replace("Slit", "SLIT")
            return f"{kind}: {places_in_words(places)}"
        if self.is_on_drives:
            if is_path:
                path = f"{place_in_words(source)} reading the drives of {place_in_words(sink)}"
            elif first == self.target and self.initiator is not None:
                path = f"{place_in_words(self.initiator)} reading {place_in_words(first)}"
            else:
                slow = places if self.target is None else [str(self.target)]
                return f"Slow together: {places_in_words(map(_drives_of_node, slow))}"
        elif is_path:
            path = f"accesses by {place_in_words(source)} to the memory of {place_in_words(sink)}"
            cells = {(_node_name(start), _node_name(end)) for start, end in self.cells}
            path += ", and in the opposite direction" if (sink, source) in cells else ""
        elif self.initiator is None and self.target is not None:
            path = f"all accesses from other nodes to the memory of {place_in_words(first)}"
        elif self.target is None and self.initiator is not None:
            path = f"all accesses by {place_in_words(first)} to the memory of other nodes"
        else:
            path = places_in_words(places)
        return f"Slow path: {path}"

    @property
    def evidence_sentence(self) -> str:
        """Sentence with the loss, its interval, the confidence and the comparable cells."""
        return text_of_macro("anomalies", "evidence", anomaly=self)

    def rows_of_cells(self, measurements: Measurements) -> pd.DataFrame:
        """Return the rows of a host's table for the cells of this anomaly."""
        known = {
            name: self.where[name] for name in SLICE_COLUMNS if self.where.get(name) is not None
        }
        rows = measurements.where(**known).rows
        cells = {(str(initiator), str(target)) for initiator, target in self.cells}
        # A node matrix names its cells by node numbers. All other cells have place names.
        places = rows[["initiator", "target", "initiator_nodes", "target_nodes"]].astype(str)
        own = [bool(cells & {(i, t), (m, n)}) for i, t, m, n in places.itertuples(index=False)]
        return rows[np.array(own, dtype=bool)]


def _node_name(place: int | str) -> str:
    return node_name(place) if isinstance(place, int) else place


def _drives_of_node(name: str) -> str:
    """Return, for the name of a node, the name of its drives; any other name is unchanged."""
    place = parse_place_name(name)
    if place is None or place.kind != "node":
        return name
    return str(PlaceName("node_drives", place.indices))


def shared_initiator_and_target(
    cells: Iterable[CellNames],
) -> tuple[int | str | None, int | str | None]:
    """Return the initiator and the target that all cells share; None where the cells differ."""
    ends: tuple[set[int | str], ...] = tuple(map(set, zip(*cells, strict=True)))
    initiator, target = (names.pop() if len(names) == 1 else None for names in ends)
    return initiator, target


@dataclass(frozen=True, config=_PYDANTIC_SETTINGS)
class ComparableCells(_JsonResult):
    """Cells that should be equal on a healthy machine, because of the machine's structure."""

    name: str  # name of the group, such as local, same package, far
    cells: tuple[tuple[int, int], ...]  # (initiator, target) of each cell
    typical: _SevenDigits  # median of the cells' values, in the metric's unit

    @computed_field  # type: ignore[prop-decorator] # as pydantic's manual says
    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.cells)


def no_problems_text(
    checked: Sequence[str], untested: Sequence[str], detectable_loss_percent: float | None
) -> str:
    """Return the sentences for a host without findings: what was tested and what was not.

    `detectable_loss_percent` is the smallest loss that every test detects; None if unknown.
    """
    values = {"checked": checked, "untested": untested, "loss": detectable_loss_percent}
    return text_of_macro("anomalies", "no_problems", **values)


@dataclass(frozen=True, config=_PYDANTIC_SETTINGS)
class Findings(_JsonResult):
    """All findings of a matrix or of a host."""

    metric: str | None  # name of the matrix's metric; None for a host, which has several metrics
    verdict: str  # the result in one sentence
    structure: str  # description of which cells should be equal
    # Nodes of each package, given or learned; None if no packages explain the values.
    packages: tuple[tuple[int, ...], ...] | None
    # The cell groups of a matrix, the best first; empty for a host.
    groups: tuple[ComparableCells, ...]
    # Anomalies without a doubt. Those of a matrix are sorted by loss, those of a host by the
    # product of loss and confidence, the largest first.
    anomalies: tuple[Anomaly, ...]
    # Smallest loss of a single cell that is detected with 95 % probability, in per cent; None if
    # nothing could be compared.
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
    """Return the advice for a slow part of a node, a slow path or a kind of finding."""
    return str(texts_of_yaml_file("anomalies")["advice"][name])


def loss_text(metric: str, percent: float) -> str:
    """Return a loss with its direction: "12 % less" or "12 % longer"."""
    number = f"{percent:.0f}" if percent >= 9.5 else f"{percent:.1f}"
    return f"{number} % longer" if less_is_better(metric) else f"{number} % less"


def verb_before_value(metric: str) -> str:
    """Return the verb for a metric: a pair of nodes "gets" a bandwidth or "takes" a time."""
    return "takes" if less_is_better(metric) else "gets"


def values_and_loss_text(
    metric: str, observed: float, expected: float, percent: float, between: str = ""
) -> str:
    """Return "30 GB/s instead of 50 GB/s, 40 % less"; the text `between` follows the values."""
    values = f"{format_quantity(metric, observed)} instead of {format_quantity(metric, expected)}"
    return f"{values}{between}, {loss_text(metric, percent)}"


def shorten_list(items: Sequence[str], most: int) -> list[str]:
    """Return the first `most` items and, as the last item, the number of omitted items."""
    more = len(items) - most
    return [*items[:most], f"{more} more"] if more > 0 else list(items)


# Kinds of anomalies whose expected value is that of one better cell. All other kinds expect the
# value of a group of cells.
_KINDS_COMPARED_WITH_ONE_CELL = (AnomalyKind.REMOTE_BETTER, AnomalyKind.ADDING_DRIVES)
_KINDS_COMPARED_WITH_GROUP = (AnomalyKind.SLOW_COMPONENT, AnomalyKind.SLOW_PATH)
# If fewer than this share of the replicates are disturbed or imprecise, the good replicates decide
# the median.
_LEAST_SHARE_OF_DISTURBED_REPLICATES = 0.5
# Other programs and slow clocks cost a single run at most half of its speed. So a loss of at least
# this share counts as a fault, even in a single run.
_LOSS_ABOVE_ANY_DISTURBANCE = 0.6
# Half width of an interval, as a share of the median, from which on the interval includes zero.
_HALF_WIDTH_OF_USELESS_INTERVAL = 1.0


def adjust_confidence_and_add_doubt(
    anomaly: Anomaly, tests_count: int, measurements: Measurements, *, unusable: bool
) -> Anomaly:
    """Return the anomaly with its confidence over all tests of the host, and with any doubt.

    An anomaly is doubtful if its loss is not clear over all tests of the host together
    (Bonferroni), or if its measurements are not reliable. `measurements` has the host's valid rows.
    `unusable` says whether the host's results are useless.
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
    """Return the anomaly as a suspicion with this doubt, or unchanged if `doubt` is empty."""
    if not doubt:
        return anomaly
    advice = f"Measure it again before anything else. {anomaly.advice}"
    return replace(anomaly, doubt=doubt, advice=advice)


def doubt_of_single_run(anomaly: Anomaly) -> str:
    """Return why an anomaly is doubtful if a single run of one cell shows it; otherwise empty."""
    one_value = anomaly.kind in _KINDS_COMPARED_WITH_ONE_CELL or (
        anomaly.kind in _KINDS_COMPARED_WITH_GROUP and len(anomaly.cells) == 1
    )
    is_doubtful = one_value and anomaly.loss_as_share_of_better_value < _LOSS_ABOVE_ANY_DISTURBANCE
    return text_of_macro("anomalies", "single_run") if is_doubtful and anomaly.n == 1 else ""


def _share_with_remarks(anomaly: Anomaly, measurements: Measurements) -> float:
    """Return the share of the anomaly's cells with remarks in at least half of their replicates.

    Such replicates may decide the median. A cell can have several points, for example one load
    alone and one with all cores. The point with the most remarks counts.
    """
    rows = anomaly.rows_of_cells(measurements)
    remarked = rows["remarks"].notna()
    of_points = remarked.groupby([rows[name] for name in ("initiator", "target", "point")]).mean()
    worst = of_points.groupby(level=[0, 1]).max()
    return float((worst >= _LEAST_SHARE_OF_DISTURBED_REPLICATES).sum() / max(1, len(worst)))


def without_disturbed_replicates(measurements: Measurements) -> Measurements:
    """Return the valid rows without replicates that other programs or a slow clock disturbed.

    If all replicates of a load were disturbed, they are kept.
    """
    rows, disturbed = measurements.rows, disturbed_mask(measurements.rows)
    loads = [rows[name] for name in (*POINT_COLUMNS, "load", "metric")]
    return measurements.select(~disturbed | disturbed.groupby(loads, dropna=False).transform("all"))


def reason_for_unusable_results(measurements: Measurements) -> str:
    """Return why results are useless and what to do, as sentences; empty if they are usable.

    Results are useless if at least half of the replicates were disturbed, or if at least half of
    the cells have an interval whose half width is the median or more. The intervals leave out
    disturbed replicates if the cell has others. `measurements` has valid rows of rates and times.
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

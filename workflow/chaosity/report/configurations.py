"""All measured configurations of a host side by side: verdicts, then a row a resource.

All arithmetic is `compare`'s. Its verdict takes the places of a class together, since in another
configuration a place is another thing of the same name. The rows show the best and the worst place
of a resource; these are compared as cells of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare import compare_selections
from chaosity.compare.comparison_text import BETTER, NO_DIFFERENCE, WORSE, ratio_text
from chaosity.compare.matched_cells import PLACE
from chaosity.errors import UserError
from chaosity.figures import FigureFile, write_bars
from chaosity.report.resource_table import (
    DRIVES,
    INITIATORS,
    OTHER,
    OWN,
    MeasuredPlace,
    ResourceLevel,
    load_description,
    matching_rows,
    measured_place,
    rank_cells,
    resource_levels,
)
from chaosity.statistics import plain
from chaosity.units import format_count

_CELL = ["experiment", "point", "load", "initiator", "target", "metric"]
_BEST, _WORST = "best place", "worst place"
# `matching_rows` saw to it that the same was asked; who answered is a place and belongs to the best.
_SEEN_TO = ("load", "asked", "file_backed")


@dataclass(frozen=True)
class ConfigurationColumn:
    """A configuration: its name, when it was measured, and its report as seen from this one."""

    name: str
    measured: str
    link: str | None


@dataclass(frozen=True)
class ConfigurationVerdict:
    """Another configuration against this report's, as `compare` says it.

    Attributes:
        verdict: how many cells differ and where most.
        groups: a sentence for each metric of each category.
        notes: sentences that must be known to read the ratios, and what has no partner.
    """

    verdict: str
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RatioText:
    """A ratio in words, and compare's verdict: better, worse, or another."""

    words: str
    verdict: str


@dataclass(frozen=True)
class ConfigurationCell:
    """A resource in one configuration.

    Attributes:
        best, worst: as in the table of resources; worst is None where there is just one place.
        detail: size and number of places, such as "24 threads, 8 places".
        ratio: of the best place to that of this report's configuration; None for the
            configuration itself and where that has none.
        worst_ratio: of the worst places.
    """

    best: MeasuredPlace
    worst: MeasuredPlace | None
    detail: str
    ratio: RatioText | None
    worst_ratio: RatioText | None


@dataclass(frozen=True)
class ConfigurationRow:
    """A resource in all configurations, None where it was not measured."""

    name: str
    detail: str
    cells: tuple[ConfigurationCell | None, ...]


@dataclass(frozen=True)
class _Line:
    """A level with the valid cells of each configuration, the best first, and their rows."""

    level: ResourceLevel
    rows: tuple[pd.DataFrame, ...]
    cells: tuple[pd.DataFrame, ...]

    @property
    def words(self) -> str:
        """Of the level, without the resource."""
        return f"{self.level.words}, {self.level.part}" if self.level.part else self.level.words


# Of each configuration: name of the level and which end of it -> the row of compare's cells.
_Ratios = Mapping[tuple[str, str], pd.Series]


@dataclass(frozen=True)
class ConfigurationsSection:
    """The section: this report's configuration is the first column; verdicts are of the others."""

    against: tuple[ConfigurationVerdict, ...]
    columns: tuple[ConfigurationColumn, ...]
    rows: tuple[ConfigurationRow, ...]
    figures: tuple[FigureFile, ...]


def compare_configurations(
    tidy: pd.DataFrame, others: Mapping[Path, pd.DataFrame], output: Path, figures: Path
) -> ConfigurationsSection | None:
    """Compare a host's configurations, and draw the comparison.

    Args:
        tidy: the tidy table of the report's configuration.
        others: tidy tables of the other configurations by their paths.
        output: where the report will lie.
        figures: folder of the figures.

    Returns:
        None without a value in another configuration, or in this one.
    """
    tables = [plain(tidy), *(plain(table) for table in others.values())]
    if measured_configuration(tables[0]) is None:
        return None
    paths = [None, *others]
    held = [(table, path) for table, path in zip(tables, paths, strict=True)
            if measured_configuration(table) is not None]  # fmt: skip
    if len(held) < 2:
        return None
    tables = [table for table, _ in held]
    columns = tuple(_column(table, path, output) for table, path in held)
    names = [column.name for column in columns]
    lines = [_line(level, tables) for level in _union(tables)]
    ratios: list[_Ratios] = [{}, *(_ratios(lines, each) for each in range(1, len(tables)))]
    return ConfigurationsSection(
        against=tuple(_against(table, tables[0], (name, names[0]))
                      for table, name in zip(tables[1:], names[1:], strict=True)),
        columns=columns,
        rows=tuple(row for row in (_row(line, ratios) for line in lines) if row),
        figures=tuple(_draw(lines, ratios, names, figures)),
    )  # fmt: skip


def measured_configuration(tidy: pd.DataFrame) -> str | None:
    """The configuration of a table that has a value, else None."""
    valid = tidy[tidy["status"] == "valid"]
    return None if valid.empty else str(valid["configuration"].iloc[0])


def _column(tidy: pd.DataFrame, path: Path | None, output: Path) -> ConfigurationColumn:
    days = sorted({str(moment)[:10] for moment in tidy["measured_at"] if isinstance(moment, str)})
    span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    link = None
    if path is not None and (path.parent / "report.html").exists():
        link = Path(os.path.relpath(path.parent / "report.html", output.parent)).as_posix()
    return ConfigurationColumn(str(measured_configuration(tidy)), span, link)


def _union(tables: Sequence[pd.DataFrame]) -> list[ResourceLevel]:
    """The levels that any table has, each as the first of them has it, small to large."""
    found: dict[tuple[str, str, str | None], ResourceLevel] = {}
    for table in tables:
        for level in resource_levels(table):
            found.setdefault((level.resource, level.key, level.part), level)
    resources = list(dict.fromkeys(level.resource for level in found.values()))
    sizes, parts = [*INITIATORS, *DRIVES], [None, OWN, OTHER]

    def place_in_table(one: ResourceLevel) -> tuple[int, int, int]:
        return resources.index(one.resource), sizes.index(one.key), parts.index(one.part)

    return sorted(found.values(), key=place_in_table)


def _against(
    table: pd.DataFrame, own: pd.DataFrame, names: tuple[str, str]
) -> ConfigurationVerdict:
    """A configuration against this one, in compare's words."""
    try:
        found = compare_selections(table, own, names=names)
    except UserError as error:
        return ConfigurationVerdict(f"{names[0]} against {names[1]}: {error}")
    verdict, *others = found.sentences
    groups, lonely = others[: len(found.groups)], others[len(found.groups) :]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    return ConfigurationVerdict(verdict, tuple(groups), (*notes, *lonely))


def _line(level: ResourceLevel, tables: Sequence[pd.DataFrame]) -> _Line:
    rows = tuple(matching_rows(table, level) for table in tables)
    return _Line(level, rows, tuple(rank_cells(each) for each in rows))


def _ratios(lines: Sequence[_Line], number: int) -> _Ratios:
    """The ends of all levels of a configuration against those of the first one.

    They are compared all at once: of many ratios some look large by chance.
    """
    sides: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for line in lines:
        both = (number, 0)
        fewest = min(len(line.cells[each]) for each in both)
        for end, place_in_order in ((_BEST, 0), (_WORST, -1))[:fewest]:
            name = line.level.name
            marks = {"initiator": name, "target": end, "point": f"{name} {end}"}
            for side, each in zip(sides, both, strict=True):
                cell = line.cells[each].iloc[place_in_order]
                side.append(_replicates(line.rows[each], cell).assign(**marks))
    if not sides[0]:
        return {}
    left, right = (pd.concat(side, ignore_index=True) for side in sides)
    try:
        cells = compare_selections(left, right, by=PLACE, ignore=_SEEN_TO).cells
    except UserError:  # no positive value on one side
        return {}
    return {(cell["initiator"], cell["target"]): cell for _, cell in cells.iterrows()}


def _replicates(rows: pd.DataFrame, cell: pd.Series) -> pd.DataFrame:
    """The valid rows of a cell."""
    same = rows["status"] == "valid"
    for column in _CELL:
        same &= rows[column] == cell[column]
    return rows[same]


def _row(line: _Line, ratios: Sequence[_Ratios]) -> ConfigurationRow | None:
    """A line of the table; None when no configuration has a value for it."""
    cells = [_beside(line, number, own) for number, own in enumerate(ratios)]
    if not any(cells):
        return None
    return ConfigurationRow(line.level.name, load_description(line.level.rows), tuple(cells))


def _beside(line: _Line, number: int, ratios: _Ratios) -> ConfigurationCell | None:
    cells = line.cells[number]
    if cells.empty:
        return None
    best, worst = (ratios.get((line.level.name, end)) for end in (_BEST, _WORST))
    return ConfigurationCell(
        best=measured_place(cells.iloc[0]),
        worst=measured_place(cells.iloc[-1]) if len(cells) > 1 else None,
        detail=", ".join([*_size(cells), format_count(len(cells), "place")]),
        ratio=None if best is None else times(best),
        worst_ratio=None if worst is None else times(worst),
    )


def _size(cells: pd.DataFrame) -> Iterator[str]:
    """How large it is: threads of an initiator, drives of a drive set."""
    for column, noun in (("drives", "drive"), ("threads", "thread")):
        known = cells[column].dropna().astype(int)
        if not known.empty:
            low, high = int(known.min()), int(known.max())
            yield (
                format_count(high, noun) if low == high else f"{low} to {format_count(high, noun)}"
            )
            return


def times(cell: Mapping[str, Any]) -> RatioText:
    """A row of compare's cells in words, and what it means when 1 is inside the interval."""
    low, high, verdict = cell["low"], cell["high"], str(cell["verdict"])
    if pd.isna(low):
        return RatioText(f"{cell['ratio']:.2f} times, no interval: one replicate", verdict)
    words = ratio_text(cell["ratio"], low, high)
    if low <= 1.0 <= high:
        n = " and ".join(dict.fromkeys(str(int(cell[side])) for side in ("n_left", "n_right")))
        return RatioText(f"no difference detected at n = {n}: {words}", verdict)
    return RatioText(f"{words}, {verdict}" if verdict in (BETTER, WORSE) else words, verdict)


def _draw(
    lines: Sequence[_Line], ratios: Sequence[_Ratios], names: Sequence[str], folder: Path
) -> Iterator[FigureFile]:
    """A figure a resource: bars of the best places."""
    for resource in dict.fromkeys(line.level.resource for line in lines):
        own = [line for line in lines if line.level.resource == resource]
        cells, sources = [], []
        for line in own:
            for name, rows, known in zip(names, line.rows, line.cells, strict=True):
                if not known.empty:
                    marks = {"x": line.words, "series": name}
                    cells.append(known.head(1).assign(**marks))
                    sources.append(rows.assign(**marks))
        if cells:
            yield write_bars(
                pd.concat(cells, ignore_index=True),
                pd.concat(sources, ignore_index=True),
                name=f"configurations_{resource.lower().replace(' ', '_')}",
                title=f"{resource} by configuration, best place of each",
                series_title="configuration",
                caption=_sentence(own, ratios, names),
                directory=folder,
            )


def _sentence(lines: Sequence[_Line], ratios: Sequence[_Ratios], names: Sequence[str]) -> str:
    """Where the best places of each other configuration lose and gain most."""
    clauses = []
    for name, own in list(zip(names, ratios, strict=True))[1:]:
        keys = {line.words: (line.level.name, _BEST) for line in lines}
        held = [(words, own[key]) for words, key in keys.items() if key in own]
        told = sorted((one for one in held if one[1]["verdict"] != NO_DIFFERENCE),
                      key=lambda one: one[1]["ratio"])  # fmt: skip
        said = [f"{told[end][0]} {times(told[end][1]).words}"
                for end in dict.fromkeys((0, len(told) - 1)) if told]  # fmt: skip
        if held:
            n = held[0][1]["n_left"]
            nothing = (f"no difference of 5 % or more detected in {format_count(len(held), 'resource')} "
                       f"at n = {n}")  # fmt: skip
            clauses.append(f"{name}: {', and '.join(said) or nothing}")
    if not clauses:
        return f"Nothing was measured both in {names[0]} and in another configuration."
    return (f"Best places compared with {names[0]}, lowest and highest clear ratio. "
            f"{'; '.join(clauses)}.")  # fmt: skip

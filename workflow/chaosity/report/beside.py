"""All measured configurations of a host side by side: one row a resource, one column each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chaosity.figures import FigureFile, write_bars
from chaosity.report.resources import (
    DRIVES,
    INITIATORS,
    OTHER,
    OWN,
    Level,
    Place,
    best_first,
    details_of,
    levels,
    place,
    same_kind,
)
from chaosity.statistics import RunRatio, plain, run_ratio
from chaosity.units import count

_CELL = ["experiment", "point", "load", "initiator", "target", "metric"]


@dataclass(frozen=True)
class Column:
    """A configuration: its name, when it was measured, and its report as seen from this one."""

    name: str
    measured: str
    link: str | None


@dataclass(frozen=True)
class Beside:
    """A resource in one configuration.

    Attributes:
        best, worst: as in the table of resources; worst is None where there is just one place.
        detail: size and number of places, such as "24 threads, 8 places".
        ratio: of the best place to that of this report's configuration, in words; None for the
            configuration itself and where that has none.
        worst_ratio: of the worst places.
    """

    best: Place
    worst: Place | None
    detail: str
    ratio: str | None
    worst_ratio: str | None


@dataclass(frozen=True)
class Row:
    """A resource in all configurations, None where it was not measured."""

    name: str
    detail: str
    cells: tuple[Beside | None, ...]


@dataclass(frozen=True)
class SideBySide:
    """The section: this report's configuration is the first column."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    figures: tuple[FigureFile, ...]


def side_by_side(
    tidy: pd.DataFrame, others: Mapping[Path, pd.DataFrame], output: Path, figures: Path
) -> SideBySide | None:
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
    if any_value(tables[0]) is None:
        return None
    paths = [None, *others]
    held = [(table, path) for table, path in zip(tables, paths, strict=True)
            if any_value(table) is not None]  # fmt: skip
    if len(held) < 2:
        return None
    tables = [table for table, _ in held]
    columns = tuple(_column(table, path, output) for table, path in held)
    found = [(level, [same_kind(table, level) for table in tables]) for level in _union(tables)]
    names = [column.name for column in columns]
    return SideBySide(
        columns=columns,
        rows=tuple(row for row in (_row(level, rows) for level, rows in found) if row),
        figures=tuple(_draw(found, names, figures)),
    )


def any_value(tidy: pd.DataFrame) -> str | None:
    """The configuration of a table that has a value, else None."""
    valid = tidy[tidy["status"] == "valid"]
    return None if valid.empty else str(valid["configuration"].iloc[0])


def _column(tidy: pd.DataFrame, path: Path | None, output: Path) -> Column:
    days = sorted({str(moment)[:10] for moment in tidy["measured_at"] if isinstance(moment, str)})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    link = None
    if path is not None and (path.parent / "report.html").exists():
        link = Path(os.path.relpath(path.parent / "report.html", output.parent)).as_posix()
    return Column(str(any_value(tidy)), span, link)


def _union(tables: Sequence[pd.DataFrame]) -> list[Level]:
    """The levels that any table has, each as the first of them has it, small to large."""
    found: dict[tuple[str, str, str | None], Level] = {}
    for table in tables:
        for level in levels(table):
            found.setdefault((level.resource, level.key, level.part), level)
    resources = list(dict.fromkeys(level.resource for level in found.values()))
    sizes, parts = [*INITIATORS, *DRIVES], [None, OWN, OTHER]

    def place_in_table(one: Level) -> tuple[int, int, int]:
        return resources.index(one.resource), sizes.index(one.key), parts.index(one.part)

    return sorted(found.values(), key=place_in_table)


def _row(level: Level, rows: Sequence[pd.DataFrame]) -> Row | None:
    """A line of the table; None when no configuration has a value for it."""
    cells = [_beside(each, rows[0] if number else None) for number, each in enumerate(rows)]
    if not any(cells):
        return None
    return Row(level.name, details_of(level.rows), tuple(cells))


def _beside(rows: pd.DataFrame, reference: pd.DataFrame | None) -> Beside | None:
    cells = best_first(rows)
    if cells.empty:
        return None
    several = len(cells) > 1
    ratios = [None, None]
    if reference is not None:
        known = best_first(reference)
        ends = (0, -1) if several and len(known) > 1 else (0,)
        for number, end in enumerate(ends):
            if not known.empty:
                ratios[number] = ratio_words(_ratio(rows, cells.iloc[end],
                                                    reference, known.iloc[end]))  # fmt: skip
    return Beside(
        best=place(cells.iloc[0]),
        worst=place(cells.iloc[-1]) if several else None,
        detail=", ".join([*_size(cells), count(len(cells), "place")]),
        ratio=ratios[0],
        worst_ratio=ratios[1],
    )


def _size(cells: pd.DataFrame) -> Iterator[str]:
    """How large it is: threads of an initiator, drives of a drive set."""
    for column, noun in (("drives", "drive"), ("threads", "thread")):
        known = cells[column].dropna().astype(int)
        if not known.empty:
            low, high = int(known.min()), int(known.max())
            yield count(high, noun) if low == high else f"{low} to {count(high, noun)}"
            return


def _ratio(rows: pd.DataFrame, cell: pd.Series, others: pd.DataFrame, other: pd.Series) -> RunRatio:
    return run_ratio(_values(rows, cell), _values(others, other))


def _values(rows: pd.DataFrame, cell: pd.Series) -> pd.Series:
    """The valid replicates of a cell."""
    same = rows["status"] == "valid"
    for column in _CELL:
        same &= rows[column] == cell[column]
    return rows.loc[same, "value"]


def ratio_words(ratio: RunRatio) -> str:
    """A ratio of two runs with its interval, and what it means when one is inside."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f} times, no interval: one replicate"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}"
    if not ratio.differs:
        n = f"{ratio.n} and {ratio.n_reference}"
        return f"no difference detected at n = {n} ({ratio.ratio:.2f} times, {interval})"
    return f"{ratio.ratio:.2f} times ({interval})"


def _draw(
    found: Sequence[tuple[Level, Sequence[pd.DataFrame]]], names: Sequence[str], folder: Path
) -> Iterator[FigureFile]:
    """A figure a resource: bars of the best places."""
    for resource in dict.fromkeys(level.resource for level, _ in found):
        cells, sources = [], []
        for level, tables in found:
            if level.resource != resource:
                continue
            for name, rows in zip(names, tables, strict=True):
                best = best_first(rows).head(1)
                if not best.empty:
                    words = f"{level.words}, {level.part}" if level.part else level.words
                    marks = {"x": words, "series": name}
                    cells.append(best.assign(**marks))
                    sources.append(rows.assign(**marks))
        if cells:
            yield write_bars(
                pd.concat(cells, ignore_index=True),
                pd.concat(sources, ignore_index=True),
                name=f"configurations_{resource.lower().replace(' ', '_')}",
                title=f"{resource} by configuration, best place of each",
                series_title="configuration",
                said=_sentence(found, names, resource),
                directory=folder,
            )


def _sentence(
    found: Sequence[tuple[Level, Sequence[pd.DataFrame]]], names: Sequence[str], resource: str
) -> str:
    """Where each other configuration loses and gains most."""
    clauses = []
    for number, name in list(enumerate(names))[1:]:
        ratios = []
        for level, tables in found:
            own, other = best_first(tables[0]), best_first(tables[number])
            if level.resource == resource and not own.empty and not other.empty:
                ratio = _ratio(tables[number], other.iloc[0], tables[0], own.iloc[0])
                words = f"{level.words}, {level.part}" if level.part else level.words
                ratios.append((ratio, words))
        if not ratios:
            continue
        told = sorted((one for one in ratios if one[0].differs is not False),
                      key=lambda one: one[0].ratio)  # fmt: skip
        said = [f"{ratio_words(told[end][0])} with {told[end][1]}"
                for end in dict.fromkeys((0, len(told) - 1)) if told]  # fmt: skip
        many = count(len(ratios), "resource")
        nothing = f"no difference detected in {many} at n = {ratios[0][0].n}"
        clauses.append(f"{name}: {' and '.join(said) or nothing}")
    if not clauses:
        return f"Nothing was measured both in {names[0]} and in another configuration."
    return f"Best places compared with {names[0]}, lowest and highest ratio. {'; '.join(clauses)}."

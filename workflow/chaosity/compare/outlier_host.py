"""Which of several hosts that should be equal is not.

The hosts themselves are the sample: equal servers differ by a percent or two, and a run differs
from the next. So a host is compared with how much the *others* scatter, cell by cell, and not with
how much its own replicates do (but hosts never agree better than their replicates allow). That
works with one replicate, too.

A host stands accused when a cell of its is 5 % or more off the median of the others and by chance
would be so in one of twenty comparisons of *all* hosts in *all* cells (Holm): naming a healthy host
costs a person a day. One host is named at a time, the clearest first, and the rest is looked at
without it, since it moves the others' median and scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.compare.cell_ratios import MATTERS
from chaosity.compare.comparison_text import asked_words, place_words
from chaosity.compare.host_deviations import (
    FEWEST,
    Fleet,
    Look,
    Scattered,
    fleet_of,
    scattered,
    settle,
)
from chaosity.errors import UserError
from chaosity.statistics import Ratio
from chaosity.units import format_count, format_percent

MOST = 64


@dataclass(frozen=True)
class HostVerdict:
    """One host among the others.

    Attributes:
        host: its name.
        speed: typical over its cells, as a share of the others' median; below 1 is slower, in
            latency too; None without a cell.
        low, high: 95 % interval over the cells.
        cells: how many were compared.
        missing: how many cells most others have and it has not.
        clear: how many differ clearly.
        worst: the cell that is farthest off, in words; of the clear ones where there are some.
        worst_ratio: its value over the median of the others.
        p_adjusted: the least chance of any cell that is far enough off, adjusted for all cells of
            all hosts; None where that cannot be said.
        differs: whether the host is named.
    """

    host: str
    speed: float | None
    low: float | None
    high: float | None
    cells: int
    missing: int
    clear: int
    worst: str
    worst_ratio: float | None
    p_adjusted: float | None
    differs: bool


@dataclass(frozen=True)
class OutlierHosts:
    """All hosts, those that differ first and then the slowest first.

    Attributes:
        hosts: verdicts.
        matched_by: PLACE or CLASS.
        compared: number of cells that three hosts or more have.
        detectable: how far off a host has to be in a typical cell to be seen, as a share; None when
            the hosts do not tell.
        detectable_at_worst: the same in the cell in which the hosts scatter most.
        cells: a row a host and clear cell: `host`, `group`, `where`, `asked_words`, `ratio`,
            `p_adjusted`.
        sentences: the verdict.
    """

    hosts: tuple[HostVerdict, ...]
    matched_by: str
    compared: int
    detectable: float | None
    detectable_at_worst: float | None
    cells: pd.DataFrame
    sentences: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, unknown as null."""
        return {
            "matched_by": self.matched_by,
            "verdict": list(self.sentences),
            "compared": self.compared,
            "detectable": self.detectable,
            "detectable_at_worst": self.detectable_at_worst,
            "hosts": [asdict(host) for host in self.hosts],
            "cells": self.cells.to_dict("records"),
        }


def find_outlier_hosts(
    tables: Mapping[str, pd.DataFrame], *, by: str | None = None
) -> OutlierHosts:
    """Compare hosts that should be equal.

    Args:
        tables: the tidy table of each host by the name that it shall have here.
        by: PLACE or CLASS; without it by place where all hosts are built alike.

    Raises:
        UserError: there are fewer than three hosts or more than 64, or no cell that three have.
    """
    if len(tables) < FEWEST:
        raise UserError(
            f"of {len(tables)} hosts it cannot be said which is at fault",
            None,
            "two can be compared, a third decides",
        )
    if len(tables) > MOST:
        raise UserError(f"{len(tables)} are more than {MOST} hosts", None, "compare fewer at once")
    by, fleet = fleet_of(tables, by)
    if not len(fleet.told):
        raise UserError("there is no cell that three hosts have", None, "compare two of them")
    named, look = settle(fleet)
    verdicts = [
        _verdict(fleet, look, number, number in named) for number in range(len(fleet.hosts))
    ]
    ordered = tuple(sorted(verdicts, key=lambda one: (not one.differs, one.speed or 0.0)))
    others = [number for number in range(len(fleet.hosts)) if number not in named]
    detectable = _detectable(look)
    sentences = [
        *_sentences(ordered, len(fleet.told), detectable),
        *_scatter(fleet, scattered(fleet, others)),
        *_lacking(ordered),
        *_several_modes(tables),
    ]
    return OutlierHosts(
        hosts=ordered,
        matched_by=by,
        compared=len(fleet.told),
        detectable=detectable[0],
        detectable_at_worst=detectable[1],
        cells=_clear_cells(fleet, look, named),
        sentences=tuple(sentences),
    )


def _detectable(look: Look) -> tuple[float | None, float | None]:
    """How far off a host has to be to be seen, in a typical cell and in that of most scatter."""
    known = look.seen[np.isfinite(look.seen)]
    if not len(known):
        return None, None
    least = MATTERS - 1.0
    typical_cell, worst_cell = (float(-np.expm1(-off)) for off in (np.median(known), known.max()))
    return max(typical_cell, least), max(worst_cell, least)


def _verdict(fleet: Fleet, found: Look, host: int, differs: bool) -> HostVerdict:
    off, clear = found.off[:, host], found.clear[:, host] & differs
    known = ~np.isnan(off)
    if not known.any():
        nothing = "no cell in common"
        return HostVerdict(
            fleet.hosts[host], None, None, None, 0, len(off), 0, nothing, None, None, differs=False
        )
    typical = Ratio.typical(np.exp(fleet.signs[known] * off[known]))
    ranked = np.where(clear if clear.any() else known, np.abs(off), -1.0)
    worst = int(np.argmax(ranked))
    p = found.p[:, host]
    large = known & ~np.isnan(p) & (np.abs(off) >= np.log(MATTERS))
    return HostVerdict(
        host=fleet.hosts[host],
        speed=typical.ratio,
        low=typical.low,
        high=typical.high,
        cells=int(known.sum()),
        missing=int((~known).sum()),
        clear=int(clear.sum()),
        worst=_cell(fleet, worst),
        worst_ratio=float(np.exp(off[worst])),
        p_adjusted=float(p[large].min()) if large.any() else None,
        differs=differs,
    )


def _cell(fleet: Fleet, number: int) -> str:
    asked = asked_words(fleet.told[number])
    where = place_words(fleet.told[number])
    return f"{fleet.groups[number]} of {where}" + (f", {asked}" if asked else "")


def _clear_cells(fleet: Fleet, found: Look, named: set[int]) -> pd.DataFrame:
    rows = [
        {
            "host": fleet.hosts[host],
            "group": fleet.groups[number],
            "where": place_words(fleet.told[number]),
            "asked_words": asked_words(fleet.told[number]),
            "ratio": float(np.exp(found.off[number, host])),
            "p_adjusted": float(found.p[number, host]),
        }
        for host in sorted(named)
        for number in np.flatnonzero(found.clear[:, host])
    ]
    columns = ["host", "group", "where", "asked_words", "ratio", "p_adjusted"]
    return pd.DataFrame(rows, columns=columns)


def _sentences(
    hosts: Sequence[HostVerdict], cells: int, detectable: tuple[float | None, float | None]
) -> list[str]:
    """Who differs, and what could have been seen of the others."""
    odd = [host for host in hosts if host.differs]
    number = sum(1 for host in hosts if host.cells)
    known = ""
    if detectable[0] is not None and detectable[1] is not None:
        known = f"; to be seen, it has to be off by about {format_percent(detectable[0])} in a cell"
        if detectable[1] >= 2.0 * detectable[0]:
            known += f", by {format_percent(detectable[1])} in the cell in which hosts scatter most"
    if not odd:
        among = f"{format_count(number, 'host')} in {format_count(cells, 'cell')}"
        return [f"No host that is off by 5 % or more detected among {among}{known}."]
    said = [
        f"{host.host} is not equal to the others: {host.clear} of {format_count(host.cells, 'cell')} "
        f"{'differs' if host.clear == 1 else 'differ'} clearly, worst {host.worst}, "
        f"{host.worst_ratio:.2f} times the others' median."
        for host in odd
    ]
    if len(odd) >= (len(hosts) - 1) // 2 and len(odd) > 1:
        said.append("So many differ that it is not sure which are right.")
    if number == FEWEST:
        return [*said, "Whether the other two are equal cannot be said once one of three is out."]
    return [*said, f"No other host that is off detected among the {number - len(odd)}{known}."]


def _scatter(fleet: Fleet, found: Sequence[Scattered]) -> list[str]:
    """That hosts differ from one another, though none stands alone."""
    if not found:
        return []
    widest = found[0]
    return [
        f"In {len(found)} of {format_count(len(fleet.told), 'cell')} hosts differ by 5 % or more beyond "
        "the scatter of their replicates, and none of them stands alone; most in "
        f"{_cell(fleet, widest.cell)}, {widest.low:.2f} to {widest.high:.2f} times the median."
    ]


def _lacking(hosts: Sequence[HostVerdict]) -> list[str]:
    """Which hosts have not been looked at as a whole."""
    lacks = [f"{host.host} {host.missing}" for host in hosts if host.missing]
    return [f"Cells that others have and a host has not: {', '.join(lacks)}."] if lacks else []


def _several_modes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """That hosts which are set differently need not be equal."""
    modes = sorted(
        {str(one) for table in tables.values() for one in table["configuration"].unique()}
    )
    if len(modes) < 2:
        return []
    return [
        f"The hosts are in several configurations ({', '.join(modes)}), which need not be equal."
    ]

"""Describe cells, groups and verdicts of comparisons as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chaosity.units import format_count, format_percent, metric_words

# Verdicts on a cell.
BETTER, WORSE = "better", "worse"
NO_DIFFERENCE, NOT_TESTED = "no difference detected", "not tested"
ARROW = "\N{RIGHTWARDS ARROW}"
_MAX_LISTED = 3


@dataclass(frozen=True)
class GroupVerdict:
    """The verdict on all cells of one metric.

    Attributes:
        group: name of the group, such as "memory bandwidth".
        metric: full name of the metric.
        ratio: median ratio over the cells.
        low, high: 95 % interval of the median ratio; None for fewer than three cells.
        cells: number of compared cells.
        better, worse: number of cells in which the left side is clearly better, or worse.
        unsaid: number of cells with too few replicates for a test.
    """

    group: str
    metric: str
    ratio: float
    low: float | None
    high: float | None
    cells: int
    better: int
    worse: int
    unsaid: int

    def typical_ratio_sentence(self, cells: pd.DataFrame) -> str:
        """Return the typical ratio of the group, and the intervals of its cells, as a sentence."""
        name = self.group[:1].upper() + self.group[1:]
        if self.cells == 1:
            only = cells.iloc[0]
            parts = [f"{name}: {ratio_text(only['ratio'], only['low'], only['high'])}, one cell"]
        else:
            parts = [f"{name}: typically {self.ratio:.3f} times"]
        if self.low is not None:
            number = format_count(self.cells, "cell")
            parts[0] += f" (95 % interval over {number} {self.low:.3f} to {self.high:.3f})"
        if self.better or self.worse:
            parts.append(f"{self.better} better, {self.worse} worse")
        known = cells[cells["low"].notna()]
        if len(known) > 1:
            half = float(((known["high"] / known["low"]) ** 0.5 - 1.0).median())
            width = f"±{format_percent(half)}" if half < 1.0 else f"a factor of {1.0 + half:.1f}"
            parts.append(f"the interval of a cell is typically {width}")
        return "; ".join(parts) + "."


def group_text(category: str, metric: str, corunning: bool = False) -> str:
    """Return the name of a group: "memory bandwidth", "memory latency with co-running loads"."""
    words, measured = str(category).replace("_", " "), metric_words(str(metric))
    quantity, _, more = measured.partition(" ")  # latency p99 of memory latency
    words = words if words.endswith(quantity) else f"{words} {quantity}"
    words = f"{words} {more}".strip()
    return f"{words} with co-running loads" if corunning else words


def class_text(description: Mapping[str, Any]) -> str:
    """Return the class of a cell: "node -> same package, drive"."""
    part = str(description["part"]).replace("_", " ")
    kind = str(description["target_kind"]).replace("_", " ")
    drives = description.get("drives")
    several = drives is not None and drives > 1  # NaN > 1 is false
    number = f"{drives:.0f} x " if several else ""
    target = part if kind == "node" else f"{number}{kind}, {part}"
    return f"{description['initiator_kind']} {ARROW} {target}"


def benchmark_and_kernel_text(row: Mapping[str, Any]) -> str:
    """Return benchmark and kernel: "chaosity bandwidth (read)"."""
    program = str(row["benchmark"]).replace("_", " ")
    program = "an unknown program" if program == "unknown" else program
    known = row["kernel"] and row["kernel"] != "unknown"
    return f"{program} ({row['kernel']})" if known else program


def ratio_text(ratio: float, low: float | None, high: float | None) -> str:
    """Return a ratio with its interval: "0.61 times (0.58 to 0.64)"."""
    interval = "no interval" if low is None or pd.isna(low) else f"{low:.2f} to {high:.2f}"
    return f"{ratio:.2f} times ({interval})"


def verdict_sentences(
    names: tuple[str, str],
    cells: pd.DataFrame,
    groups: Sequence[GroupVerdict],
    unmatched: Sequence[Mapping[str, int]],
) -> Iterator[str]:
    """Yield the overall verdict, a sentence for each group, and one on cells without a partner."""
    yield f"{names[0]} against {names[1]}: {_overall_text(cells)}."
    for group in groups:
        yield group.typical_ratio_sentence(cells[cells["group"] == group.group])
    for name, other, own in zip(names, names[::-1], unmatched, strict=True):
        if own:
            number = sum(own.values())
            listed = [f"{many} of {text}" for text, many in list(own.items())[:_MAX_LISTED]]
            more = ", and others" if len(own) > len(listed) else ""
            has = "has" if number == 1 else "have"
            yield (
                f"{format_count(number, 'cell')} of {name} {has} no comparable cell in {other}: "
                f"{'; '.join(listed)}{more}."
            )


def _overall_text(cells: pd.DataFrame) -> str:
    """Return how many clear differences there are in each direction, and the worst."""
    counts = cells["verdict"].value_counts()
    untested, better, worse = (int(counts.get(name, 0)) for name in (NOT_TESTED, BETTER, WORSE))
    tested = format_count(len(cells) - untested, "cell")
    parts = []
    if better + worse:
        verb = "differs" if better + worse == 1 else "differ"
        directions = [f"{worse} worse"] if worse else []
        directions += [f"{better} better"] if better else []
        extreme = _cell_text(cells.iloc[0 if worse else -1])
        parts.append(
            f"{better + worse} of {tested} {verb} clearly by 5 % or more, "
            f"{' and '.join(directions)}; the {'worst' if worse else 'best'} is {extreme}"
        )
    elif untested < len(cells):
        parts.append(f"no difference of 5 % or more detected in {tested} at n = {_n_text(cells)}")
    if untested:
        verb = "was" if untested == 1 else "were"
        number = format_count(untested, "cell")
        parts.append(f"{number} {verb} not tested, since a side has one replicate")
    return "; ".join(parts)


def _n_text(cells: pd.DataFrame) -> str:
    """Return the number of replicates: "3", "2 to 3" or "3 and 5"."""
    sides = []
    for side in ("n_left", "n_right"):
        low, high = int(cells[side].min()), int(cells[side].max())
        sides.append(str(low) if low == high else f"{low} to {high}")
    return sides[0] if sides[0] == sides[1] else " and ".join(sides)


def _cell_text(cell: pd.Series) -> str:
    load = f", {cell['asked_words']}" if cell["asked_words"] else ""
    ratio = ratio_text(cell["ratio"], cell["low"], cell["high"])
    return f"{cell['group']} of {cell['where']}{load}, {ratio}"

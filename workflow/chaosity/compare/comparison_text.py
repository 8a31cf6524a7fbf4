"""Cells, groups and verdicts in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from chaosity.units import format_binary_bytes, format_count, format_percent, metric_words

if TYPE_CHECKING:
    from chaosity.compare.comparison import GroupVerdict

# What can be said of a cell.
BETTER, WORSE = "better", "worse"
NOTHING, UNSAID = "no difference detected", "cannot be said"
_ARROW = "\N{RIGHTWARDS ARROW}"


def group_words(category: str, metric: str, company: bool = False) -> str:
    """Such as "memory bandwidth" or "memory latency beside other loads"."""
    words, measured = str(category).replace("_", " "), metric_words(str(metric))
    quantity, _, more = measured.partition(" ")  # latency p99 of memory latency
    words = words if words.endswith(quantity) else f"{words} {quantity}"
    words = f"{words} {more}".strip()
    return f"{words} beside other loads" if company else words


def place_words(told: Mapping[str, Any]) -> str:
    """Where a cell is: "node2 -> node3", or of a class "one node -> own node"."""
    ends = [str(told[end]) for end in ("initiator", "target") if told.get(end) is not None]
    return f" {_ARROW} ".join(ends) or kind_words(told)


def kind_words(told: Mapping[str, Any]) -> str:
    """The class of a cell: "node -> same package, drive"."""
    part = str(told["part"]).replace("_", " ")
    kind = str(told["target_kind"]).replace("_", " ")
    drives = told.get("drives")
    several = drives is not None and not pd.isna(drives) and drives > 1
    number = f"{int(drives)} x " if several else ""
    target = part if kind == "node" else f"{number}{kind}, {part}"
    return f"{told['initiator_kind']} {_ARROW} {target}"


def asked_words(told: Mapping[str, Any]) -> str:
    """What was asked of a cell's load: "triad, 64 MiB, thp pages"."""
    levels = json.loads(str(told["asked"]).partition("} ")[0].rstrip("} ") + "}")
    words = [told.get("kernel")]
    for name, level in levels.items():
        shown = format_binary_bytes(float(level)) if name == "bytes" else f"{name} {level}"
        words.append(shown)
    company = told.get("company") or told.get("company_class")
    words.append(f"beside {company}" if company else None)
    return ", ".join(str(word) for word in words if word)


def program_words(row: Mapping[str, Any]) -> str:
    """Which program asked what: "chaosity bandwidth (read)"."""
    program = str(row["benchmark"]).replace("_", " ")
    program = "an unknown program" if program == "unknown" else program
    known = row["kernel"] and row["kernel"] != "unknown"
    return f"{program} ({row['kernel']})" if known else program


def ratio_words(ratio: float, low: float | None, high: float | None) -> str:
    """A ratio with its interval: "0.61 times (0.58 to 0.64)"."""
    interval = "no interval" if low is None or pd.isna(low) else f"{low:.2f} to {high:.2f}"
    return f"{ratio:.2f} times ({interval})"


def verdict_sentences(
    names: tuple[str, str],
    cells: pd.DataFrame,
    groups: Sequence[GroupVerdict],
    only: Sequence[Mapping[str, int]],
) -> Iterator[str]:
    """The overall verdict, then a sentence a group, then what only one side has."""
    yield f"{names[0]} against {names[1]}: {_clearly(cells)}."
    for group in groups:
        yield _group_sentence(group, cells[cells["group"] == group.group])
    for name, other, found in zip(names, names[::-1], only, strict=True):
        if found:
            number = sum(found.values())
            listed = [f"{many} of {words}" for words, many in list(found.items())[:3]]
            more = ", and others" if len(found) > len(listed) else ""
            yield (
                f"{format_count(number, 'cell')} of {name} {_has(number)} no partner in {other}: "
                f"{'; '.join(listed)}{more}."
            )


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _clearly(cells: pd.DataFrame) -> str:
    """How many cells differ, and in which direction."""
    counts = cells["verdict"].value_counts()
    unsaid, better, worse = (int(counts.get(one, 0)) for one in (UNSAID, BETTER, WORSE))
    judged = len(cells) - unsaid
    rest = ""
    if unsaid:
        rest = (
            f"whether {format_count(unsaid, 'cell')} {'differs' if unsaid == 1 else 'differ'} cannot "
            "be said, for a side has one replicate"
        )
    if not judged:
        return rest
    if not better + worse:
        said = f"no difference of 5 % or more detected in {format_count(judged, 'cell')} at n = {_n(cells)}"
    else:
        verb = "differs" if better + worse == 1 else "differ"
        directions = [f"{worse} worse" if worse else None, f"{better} better" if better else None]
        said = (
            f"{better + worse} of {format_count(judged, 'cell')} {verb} clearly by 5 % or more, "
            f"{' and '.join(filter(None, directions))}"
        )
        said += f"; the {'worst' if worse else 'best'} is {_cell(cells.iloc[0 if worse else -1])}"
    return "; ".join(filter(None, (said, rest)))


def _n(cells: pd.DataFrame) -> str:
    sides = []
    for side in ("n_left", "n_right"):
        low, high = int(cells[side].min()), int(cells[side].max())
        sides.append(str(low) if low == high else f"{low} to {high}")
    return sides[0] if sides[0] == sides[1] else " and ".join(sides)


def _cell(cell: pd.Series) -> str:
    asked = f", {cell['asked_words']}" if cell["asked_words"] else ""
    ratio = ratio_words(cell["ratio"], cell["low"], cell["high"])
    return f"{cell['group']} of {cell['where']}{asked}, {ratio}"


def _group_sentence(group: GroupVerdict, cells: pd.DataFrame) -> str:
    """The typical ratio of a group, and how the intervals of its cells are."""
    name = group.group[:1].upper() + group.group[1:]
    interval = ""
    if group.low is not None:
        interval = (
            f" (95 % interval over {format_count(group.cells, 'cell')} "
            f"{group.low:.3f} to {group.high:.3f})"
        )
    said = [f"{name}: typically {group.ratio:.3f} times{interval}"]
    if group.cells == 1:
        one = cells.iloc[0]
        said = [f"{name}: {ratio_words(one['ratio'], one['low'], one['high'])}, one cell"]
    if group.better or group.worse:
        said.append(f"{group.better} better, {group.worse} worse")
    known = cells[cells["low"].notna()]
    if len(known) > 1:
        half = ((known["high"] / known["low"]) ** 0.5 - 1.0).median()
        width = f"±{format_percent(float(half))}" if half < 1.0 else f"a factor of {1.0 + half:.1f}"
        said.append(f"a cell's own interval is typically {width}")
    return "; ".join(said) + "."

"""Format values as text with units, and choose one unit prefix for all values of a figure.

The name of a metric ends with the unit of its values (`bandwidth_bytes_per_second`, `latency_ns`).
Most units are SI units without a prefix, such as bytes per second. The functions of this module
turn values into text, and choose the prefix for an axis. GB means 10^9 bytes, GiB means 2^30 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Decimal prefixes for rates and for sizes of drives, the largest first.
_SI_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY_PREFIXES = (
    (2.0**50, "Pi"),
    (2.0**40, "Ti"),
    (2.0**30, "Gi"),
    (2.0**20, "Mi"),
    (2.0**10, "Ki"),
)

# Suffix of a metric's name -> scales of its unit, the largest first. If several suffixes match, the
# longest one counts.
_SCALES_OF_UNIT_SUFFIX: Mapping[str, tuple[tuple[float, str], ...]] = {
    "_bytes_per_second": tuple((factor, f"{prefix}B/s") for factor, prefix in _SI_PREFIXES),
    "_operations_per_second": tuple((factor, f"{prefix}op/s") for factor, prefix in _SI_PREFIXES),
    "_reads_per_second": tuple(
        (factor, f"{prefix} reads/s".strip()) for factor, prefix in _SI_PREFIXES
    ),
    "elements_per_second": tuple((factor, f"{prefix}elem/s") for factor, prefix in _SI_PREFIXES),
    "_bits_per_second": tuple((factor, f"{prefix}bit/s") for factor, prefix in _SI_PREFIXES),
    "_hertz": tuple((factor, f"{prefix}Hz") for factor, prefix in _SI_PREFIXES),
    "_bytes": (*((factor, f"{prefix}B") for factor, prefix in _BINARY_PREFIXES), (1.0, "B")),
    "_seconds": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "_ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "_percent": ((1.0, "%"),),
    "_ratio": ((1.0, ""),),
    "_count": ((1.0, ""),),
}
_SCALES_WITHOUT_UNIT = ((1.0, ""),)


@dataclass(frozen=True)
class UnitScale:
    """A unit for showing values: shown value = value / factor."""

    factor: float  # size of the shown unit in units of the metric
    symbol: str  # text after the number, such as "GB/s"; empty without a unit
    decimals: int  # number of decimals that gives the largest value three significant digits

    def number(self, value: float) -> str:
        """Return the value as text, without its unit and with the decimals of the scale."""
        return f"{value / self.factor:.{self.decimals}f}"

    def text(self, value: float) -> str:
        """Return the value as text with its unit."""
        return f"{self.number(value)} {self.symbol}".rstrip()


def _unit_suffix(metric: str) -> str | None:
    """Return the suffix of a metric's name that is a unit; None if the name has no unit."""
    matching = [suffix for suffix in _SCALES_OF_UNIT_SUFFIX if metric.endswith(suffix)]
    return max(matching, key=len, default=None)


def metric_has_unit(metric: str) -> bool:
    """Return whether a metric's name ends with a unit; other metrics are numbers or ratios."""
    return _unit_suffix(metric) not in (None, "_ratio")


def choose_scale(metric: str, values: Iterable[float]) -> UnitScale:
    """Return the unit, with its prefix, in which all given values of a metric are shown.

    The largest value gets one to three digits before the decimal point, so smaller values may be
    below 1.

    Args:
        metric: name that ends with the unit, such as `bandwidth_bytes_per_second`.
        values: values in the unit of the metric; NaN is ignored.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    steps = _SCALES_OF_UNIT_SUFFIX.get(_unit_suffix(metric) or "", _SCALES_WITHOUT_UNIT)
    if largest == 0.0:  # zero fits every prefix, so the unit without a prefix is used
        factor, symbol = next(step for step in steps if step[0] == 1.0)
    else:  # 999.7 would be shown as "1000", so the next prefix starts where rounding reaches 1000
        factor, symbol = next((step for step in steps if largest >= step[0] * 0.9995), steps[-1])
    return UnitScale(factor, symbol, _decimals_for_three_digits(largest / factor))


def _decimals_for_three_digits(largest: float) -> int:
    """Return the number of decimals that gives the largest shown value three significant digits."""
    if largest <= 0.0 or largest >= 99.95:
        return 0
    return 1 if largest >= 9.995 else 2 if largest >= 0.9995 else 3


def format_quantity(metric: str, value: float | None) -> str:
    """Return a value with the unit prefix that fits it, such as "41.2 GB/s"; "unknown" for None."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return choose_scale(metric, [value]).text(value)


def interval_hidden_by_rounding(metric: str, value: float, low: float, high: float) -> str | None:
    """Return an interval as "± 0.1 %" if rounding makes both of its ends equal, else None.

    Both ends are rounded to the decimals of the value.
    """
    scale = choose_scale(metric, [value])
    if scale.number(low) != scale.number(high):
        return None
    width = 100 * max(high / value - 1, 1 - low / value) if value else 0.0
    return f"± {max(math.ceil(10 * width - 1e-6), 1) / 10:.1f} %"


def format_with_interval(metric: str, value: float, low: float, high: float) -> str:
    """Return a value with its interval, such as "78.0 GB/s (34.6 to 78.4)", "27.6 GB/s ± 0.1 %"."""
    scale = choose_scale(metric, [value])
    if hidden := interval_hidden_by_rounding(metric, value, low, high):
        return f"{scale.text(value)} {hidden}"
    return f"{scale.text(value)} ({scale.number(low)} to {scale.number(high)})"


def metric_in_words(metric: str) -> str:
    """Return the words of a metric's name without its unit: "path bandwidth".

    If the name is only a unit (`elements_per_second`), return "speed".
    """
    suffix = _unit_suffix(metric)
    words = metric.removesuffix(suffix) if suffix else metric
    return words.replace("_", " ").strip() or "speed"


def format_binary_bytes(value: float | None) -> str:
    """Return the size of memory or a cache in powers of 1024: "31.2 GiB" or, if whole, "2 GiB"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    scale = choose_scale("_bytes", [value])
    shown = value / scale.factor
    return f"{shown:.0f} {scale.symbol}" if shown == round(shown) else scale.text(value)


def format_exact_bytes(value: int) -> str:
    """Return an exact size as text in the largest unit that divides the size: "64MiB", "48KiB"."""
    factor, prefix = next((step for step in _BINARY_PREFIXES if value % step[0] == 0), (1.0, ""))
    return f"{value // int(factor)}{prefix}B"


def format_decimal_bytes(value: float | None) -> str:
    """Return a drive's size in powers of 1000, as vendors state sizes: "1.92 TB"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    factor, prefix = next(
        (step for step in _SI_PREFIXES if value >= step[0] * 0.9995), _SI_PREFIXES[-1]
    )
    return UnitScale(
        factor, f"{prefix}B", _decimals_for_three_digits(value / factor) if factor > 1.0 else 0
    ).text(value)


def format_duration(seconds: float | None) -> str:
    """Return a time span: "0.4 s", "52 s", "4 min 10 s", "3 h 05 min", "2 d 04 h"."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(whole / 60), 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(whole / 3600), 24)
    return f"{days} d {hours:02d} h"


def parse_duration(text: str) -> int:
    """Return the seconds in a text such as ``30m``, ``2h`` or ``1h30m``.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration such as 30m, 2h or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


def parse_share(text: str) -> float:
    """Return the share in a text such as ``2 %`` or ``0.02``.

    Raises:
        ValueError: the text has another form, or the share is not between 0 and 1.
    """
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = math.nan
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{text!r} is not a share such as 2 % or 0.02")
    return share


def group_thousands(number: int) -> str:
    """Return a whole number with a thin space between thousands."""
    return f"{number:,}".replace(",", "\N{THIN SPACE}")


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun in singular or plural: "1 point", "2 040 points"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{group_thousands(number)} {noun}"


def format_percent(share: float) -> str:
    """Return a share as a percentage with two significant digits below 10: 0.034 -> "3.4 %"."""
    value = 100.0 * share
    return f"{value:.1f} %" if 0.05 <= abs(value) < 9.95 else f"{value:.0f} %"


def join_with_and(items: Sequence[object]) -> str:
    """Return one or more items as a list in a sentence: "a, b and c"."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last

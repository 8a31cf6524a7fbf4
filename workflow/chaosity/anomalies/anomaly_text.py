"""Sentences and advice for anomalies."""

from __future__ import annotations

from collections.abc import Sequence

from chaosity.store.measurements import less_is_better
from chaosity.text_templates import fixed_texts
from chaosity.units import format_quantity

# Parts of a node matrix that can be suspected.
TARGET, INITIATOR, INTO, OUT_OF = "target", "initiator", "into", "out_of"
LINKS, BLOCK, LOCAL, PATH = "links", "block", "local", "path"
PROCESSING_UNITS = "processing_units"  # some of a node
BOTH_WAYS = "both_ways"  # both paths between two nodes
LINK = "link"  # a link between packages, by the direction of the data


def advice_text(name: str) -> str:
    """Return the advice for a suspected part of a node, a path or a kind of finding."""
    return str(fixed_texts("anomalies")["advice"][name])


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


def suspected_part_text(part: str, *numbers: int) -> str:
    """Return the beginning of a sentence that names the suspected part of nodes or packages."""
    return str(fixed_texts("anomalies")["suspected_part"][part]).format(*numbers)

"""Sentences and advice for anomalies."""

from __future__ import annotations

from collections.abc import Sequence

from chaosity.store.measurements import less_is_better
from chaosity.units import format_quantity

# Parts of a node matrix that can be suspected.
TARGET, INITIATOR, INTO, OUT_OF = "target", "initiator", "into", "out_of"
LINKS, BLOCK, LOCAL, PATH = "links", "block", "local", "path"
_MEMORY = (
    "Look at the memory of that node: modules missing, mixed or slower than the others "
    "(dmidecode --type 17), correctable errors (edac-util, the BMC's log), a channel disabled."
)
ADVICE = {
    TARGET: _MEMORY,
    INITIATOR: "Look at the processing units of that node: clock and governor (cpupower "
    "frequency-info), thermal throttling, a power limit, other programs pinned there.",
    INTO: "Look at the links of that node (UPI, xGMI or fabric width and speed in the BMC's log) "
    "and at the memory of that node.",
    OUT_OF: "Look at the links of that node (UPI, xGMI or fabric width and speed in the BMC's "
    "log).",
    LINKS: "Look at the links of that node: width and speed of UPI, xGMI or fabric in the BMC's "
    "log, a link that trained down, a package that is not seated well.",
    BLOCK: "Look at the links between these packages: width and speed of UPI or xGMI in the BMC's "
    "log, a link that trained down or is disabled in the firmware.",
    LOCAL: f"{_MEMORY} Remote accesses are limited by the links and may not show it.",
    PATH: "Look at the link or mesh segment on this path (width, speed, retries in the BMC's "
    "log). After a repair, measure the opposite direction and the neighbouring nodes again.",
}
_SUSPECTS = {
    TARGET: "The memory of node {} is slow",
    INITIATOR: "The processing units of node {} are slow",
    INTO: "The path to the memory of node {} is slow",
    OUT_OF: "The path from node {} to remote memory is slow",
    LINKS: "The paths to and from node {} are slow",
    LOCAL: "Node {} is slow on its own memory",
}
# For initiators that are not a whole node.
CHECK_PROCESSING_UNITS = (
    "Look at its processing units: clock and governor (cpupower frequency-info), thermal "
    "throttling, other programs pinned there."
)


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


def suspected_part_of_node_text(part: str, node: int) -> str:
    """Return the beginning of a sentence that names the suspected part of a node."""
    return _SUSPECTS[part].format(node)

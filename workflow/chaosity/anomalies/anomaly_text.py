"""What is said of a departure: a sentence, and what to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chaosity.statistics import less_is_better
from chaosity.units import format_quantity

# What a group of cells of a node matrix points at: words of the suspect, and what to look at.
TARGET, INITIATOR, INTO, OUT_OF, LINKS, BLOCK, LOCAL, PATH = (
    *("target", "initiator", "into", "out_of"),
    *("links", "block", "local", "path"),
)
ADVICE = {
    TARGET: "Look at the memory of that node: modules missing, mixed or slower than the others "
    "(dmidecode --type 17), correctable errors (edac-util, the BMC's log), a channel disabled.",
    INITIATOR: "Look at the processing units of that node: clock and governor (cpupower "
    "frequency-info), thermal throttling, a power limit, work of others pinned there.",
    INTO: "Look at the links of that node (UPI, xGMI or fabric width and speed in the BMC's log) "
    "and at the memory of that node.",
    OUT_OF: "Look at the links of that node (UPI, xGMI or fabric width and speed in the BMC's "
    "log).",
    LINKS: "Look at the links of that node: width and speed of UPI, xGMI or fabric in the BMC's "
    "log, a link that trained down, a package that is not seated well.",
    BLOCK: "Look at the links between these packages: width and speed of UPI or xGMI in the BMC's "
    "log, one of them trained down or disabled in the firmware.",
    LOCAL: "Look at the memory of that node: modules missing, mixed or slower than the others "
    "(dmidecode --type 17), correctable errors (edac-util, the BMC's log), a channel disabled. "
    "Accesses from elsewhere are held up by their links and may not show it.",
    PATH: "Look at the link or mesh segment on this way (width, speed, retries in the BMC's log); "
    "measure the opposite direction and the next nodes again after reseating.",
}
# Of initiators that are not a whole node.
UNITS = (
    "Look at its processing units: clock and governor (cpupower frequency-info), thermal "
    "throttling, work of others pinned there."
)


def worse(metric: str, percent: float) -> str:
    """How a value departs, such as "12 % less bandwidth"."""
    number = f"{percent:.0f}" if percent >= 9.5 else f"{percent:.1f}"
    return f"{number} % longer" if less_is_better(metric) else f"{number} % less"


def verb(metric: str) -> str:
    """What a pair of nodes does: gets bandwidth, takes time."""
    return "takes" if less_is_better(metric) else "gets"


def values(metric: str, observed: float, expected: float) -> str:
    """Both values, in a readable unit."""
    return f"{format_quantity(metric, observed)} instead of {format_quantity(metric, expected)}"


def loss(numbers: Mapping[str, Any], where: str = "") -> str:
    """Both values and how much worse, such as "30 GB/s instead of 50 GB/s, 40 % less".

    Args:
        numbers: of an anomaly, by the names of its attributes.
        where: what is said between the values and the loss.
    """
    metric = numbers["metric"]
    said = values(metric, numbers["observed"], numbers["expected"])
    return f"{said}{where}, {worse(metric, numbers['loss_percent'])}"


def listed(items: Sequence[object]) -> str:
    """In a sentence: a, b and c."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def suspect(name: str, what: object) -> str:
    """The suspect of a group, as the beginning of a sentence."""
    return {
        TARGET: f"The memory of node {what} is slow",
        INITIATOR: f"The processing units of node {what} are slow",
        INTO: f"The way to the memory of node {what} is slow",
        OUT_OF: f"The way from node {what} to other memory is slow",
        LINKS: f"Node {what} is slow to reach and to reach from",
        LOCAL: f"Node {what} is slow on its own memory",
    }[name]

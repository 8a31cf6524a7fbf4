"""A point's name reads aloud and parses back: ``memory=node3+node4+triad.storage=node3+alldrives``.

Loads are joined by ``.``; each is its name, ``=``, then initiator, target and, for benchmarks that
have kernels, the kernel, joined by ``+``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Everything a part may be made of; no separator and nothing a shell or a file system minds.
PART = re.compile(r"[A-Za-z0-9_,\-]+")


@dataclass(frozen=True)
class LoadName:
    """The parts of one load's name."""

    load: str
    initiator: str
    target: str
    kernel: str | None

    def __str__(self) -> str:
        parts = [self.initiator, self.target, *([self.kernel] if self.kernel else [])]
        return f"{self.load}={'+'.join(parts)}"


def point_name(loads: list[LoadName]) -> str:
    """The name of a point from those of its loads, in alphabetical order."""
    return ".".join(str(load) for load in sorted(loads, key=lambda one: one.load))


def parse_point_name(name: str) -> list[LoadName]:
    """The loads that a point's name speaks of.

    Raises:
        ValueError: it is no name of a point.
    """
    loads = []
    for text in name.split("."):
        load, equals, rest = text.partition("=")
        parts = rest.split("+")
        if not equals or len(parts) not in (2, 3) or not all(map(PART.fullmatch, [load, *parts])):
            raise ValueError(f"{text!r} in {name!r} is not LOAD=INITIATOR+TARGET[+KERNEL]")
        loads.append(LoadName(load, parts[0], parts[1], parts[2] if len(parts) == 3 else None))
    return loads

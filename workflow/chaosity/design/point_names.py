"""A point's name reads aloud and parses back.

``memory=node3+node4+triad.storage=node3+alldrives``: loads are joined by ``.``; each is its name,
``=``, then joined by ``+`` initiator, target, the kernel of a benchmark that has some, and what was
varied as ``NAME-LEVEL``, such as ``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Everything a part may be made of; no separator and nothing a shell or a file system minds.
PART = re.compile(r"[A-Za-z0-9_,\-]+")
# A kernel has no dash, a level has one behind the name of what was varied.
KERNEL = re.compile(r"[A-Za-z0-9_,]+")
LEVEL = re.compile(r"([a-z][a-z0-9_]*)-([A-Za-z0-9_,\-]+)")


@dataclass(frozen=True)
class LoadName:
    """The parts of one load's name; `levels` are names and levels of what was varied."""

    load: str
    initiator: str
    target: str
    kernel: str | None
    levels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kernel = [self.kernel] if self.kernel else []
        levels = [f"{name}-{level}" for name, level in self.levels]
        return f"{self.load}={'+'.join([self.initiator, self.target, *kernel, *levels])}"


def point_name(loads: list[LoadName]) -> str:
    """The name of a point from those of its loads, in alphabetical order."""
    return ".".join(str(load) for load in sorted(loads, key=lambda one: one.load))


def parse_point_name(name: str) -> list[LoadName]:
    """The loads that a point's name speaks of.

    Raises:
        ValueError: it is no name of a point.
    """
    return [_parse_load(text, name) for text in name.split(".")]


def _parse_load(text: str, name: str) -> LoadName:
    load, equals, rest = text.partition("=")
    initiator, target, *others = [*rest.split("+"), ""] if "+" not in rest else rest.split("+")
    kernel = others.pop(0) if others and KERNEL.fullmatch(others[0]) else None
    levels = [match for match in map(LEVEL.fullmatch, others) if match]
    whole = equals and len(levels) == len(others)
    if not whole or not all(map(PART.fullmatch, [load, initiator, target])):
        wanted = "LOAD=INITIATOR+TARGET[+KERNEL][+NAME-LEVEL...]"
        raise ValueError(f"{text!r} in {name!r} is not {wanted}")
    return LoadName(load, initiator, target, kernel, tuple((m[1], m[2]) for m in levels))

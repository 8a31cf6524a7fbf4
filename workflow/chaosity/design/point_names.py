"""Make and parse point names: ``memory=node3+node4+triad.storage=node3+alldrives``.

A name contains everything that was chosen for the point's loads. Loads are joined by ``.``. Each
load is written as its role, ``=``, and these parts joined by ``+``: the initiator, the target, the
kernel if its benchmark has kernels, and levels as ``NAME-LEVEL``, for example
``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chaosity.records.point_types import Level
from chaosity.units import format_exact_bytes

# Characters of a part: no separator, and nothing that is special in a shell or file system.
PART = re.compile(r"[A-Za-z0-9_,\-]+")
# A kernel has no dash. A level has a dash after its name.
KERNEL = re.compile(r"[A-Za-z0-9_,]+")
LEVEL = re.compile(r"([a-z][a-z0-9_]*)-([A-Za-z0-9_,\-]+)")


@dataclass(frozen=True)
class LoadName:
    """The parts of a load's name: `load` is its role, `levels` are pairs of factor and level."""

    load: str
    initiator: str
    target: str
    kernel: str | None
    levels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kernel = [self.kernel] if self.kernel else []
        levels = [f"{name}-{level}" for name, level in self.levels]
        return f"{self.load}={'+'.join([self.initiator, self.target, *kernel, *levels])}"


def make_point_name(loads: list[LoadName]) -> str:
    """Return the name of the point with these loads, sorted by role."""
    return ".".join(str(load) for load in sorted(loads, key=lambda name: name.load))


def parse_point_name(name: str) -> list[LoadName]:
    """Return the parsed names of the loads in a point's name.

    Raises:
        ValueError: the text is not the name of a point.
    """
    return [_parse_load_name(text, name) for text in name.split(".")]


def _parse_load_name(text: str, name: str) -> LoadName:
    load, equals, rest = text.partition("=")
    initiator, target, *others = [*rest.split("+"), ""] if "+" not in rest else rest.split("+")
    kernel = others.pop(0) if others and KERNEL.fullmatch(others[0]) else None
    levels = [match for match in map(LEVEL.fullmatch, others) if match]
    complete = equals and len(levels) == len(others)
    if not complete or not all(map(PART.fullmatch, [load, initiator, target])):
        wanted = "LOAD=INITIATOR+TARGET[+KERNEL][+NAME-LEVEL...]"
        raise ValueError(f"{text!r} in {name!r} is not {wanted}")
    return LoadName(load, initiator, target, kernel, tuple((m[1], m[2]) for m in levels))


def format_level(name: str, level: Level) -> str:
    """Return a level as text for a point's name: a size as 64MiB, any other level unchanged."""
    return format_exact_bytes(level) if name == "bytes" and isinstance(level, int) else str(level)

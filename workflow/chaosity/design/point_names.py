"""Make point names: ``memory=node3+node4+triad.storage=node3+alldrives``.

A name contains everything that was chosen for the point's loads. Loads are joined by ``.``. Each
load is written as its role, ``=``, and these parts joined by ``+``: the initiator, the target, the
kernel if its benchmark has kernels, and levels as ``NAME-LEVEL``, for example
``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaosity.records.point_types import Level
from chaosity.units import format_exact_bytes


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


def format_level(name: str, level: Level) -> str:
    """Return a level as text for a point's name: a size as 64MiB, any other level unchanged."""
    return format_exact_bytes(level) if name == "bytes" and isinstance(level, int) else str(level)

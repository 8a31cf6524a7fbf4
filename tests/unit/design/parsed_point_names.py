"""The parts of a point's name, read back from the name."""

from __future__ import annotations

import re

from chaosity.design.loads import LoadName

# Characters of a part: no separator, and nothing that is special in a shell or file system.
PART = re.compile(r"[A-Za-z0-9_,\-]+")
# A kernel has no dash. A level has a dash after its name.
KERNEL = re.compile(r"[A-Za-z0-9_,]+")
LEVEL = re.compile(r"([a-z][a-z0-9_]*)-([A-Za-z0-9_,\-]+)")


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

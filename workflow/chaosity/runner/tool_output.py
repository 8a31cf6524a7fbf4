r"""Reads figures out of what a tool printed, as its benchmark file says.

A *source* says where the text is (``in``: ``stdout`` or a file's name; files may be a pattern
such as ``rate_bw.*.log``) and how to read it:

``{json: "jobs[*].read.bw_bytes"}``
    A path through a JSON document: keys joined by dots, ``[*]`` for every item of a list.
``{event: done, key: valid}``
    A key of the JSON line whose ``event`` is the one named.
``{regex: "Triad:\s+([0-9.]+)"}``
    The first group of every match.

Several values are joined by ``combine``: sum, mean, minimum, maximum or single (the default: it
is an error when there is not exactly one). ``scale`` turns the tool's unit into SI.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


class ExtractionError(ValueError):
    """The tool's output does not hold what its benchmark file says it holds."""


def output_texts(source: Mapping[str, Any], outputs: Mapping[str, str]) -> list[str]:
    """The texts a source speaks of; several when it names files by a pattern."""
    wanted = source.get("in", "stdout")
    found = [outputs[name] for name in sorted(outputs) if fnmatch.fnmatchcase(name, wanted)]
    if not found:
        raise ExtractionError(f"the tool left no {wanted}")
    return found


def values_at_path(document: Any, path: str) -> list[Any]:
    """All values at a path such as ``jobs[*].read.bw_bytes`` or ``jobs[0].error``.

    An absent key or position gives no value.
    """
    values = [document]
    for step in re.findall(r"[^.\[\]]+|\[\*\]", path):
        if step == "[*]":
            values = [item for value in values if isinstance(value, list) for item in value]
        elif step.isdigit():
            number = int(step)
            values = [v[number] for v in values if isinstance(v, list) and number < len(v)]
        else:
            values = [value[step] for value in values if isinstance(value, dict) and step in value]
    return values


def parse_json_document(text: str) -> Any:
    """The JSON document in a text, behind lines such as fio's "terminating on signal 2".

    Raises:
        ExtractionError: there is none, or it is cut short.
    """
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if line.startswith(("{", "["))), 0)
    try:
        return json.loads("".join(lines[first:]))
    except ValueError as error:
        raise ExtractionError(f"the output is not JSON: {error}") from error


# The output of a load is asked for each check and each metric of it, one load after the other.
@lru_cache(maxsize=4)
def parse_json_lines(text: str) -> tuple[dict[str, Any], ...]:
    """The JSON objects among the lines of a text, to be read only; other lines are passed over."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ExtractionError(f"a line is not whole JSON: {line[:60]!r}") from error
    return tuple(found)


def extract_values(source: Mapping[str, Any], outputs: Mapping[str, str]) -> list[Any]:
    """Every value a source points at, unconverted.

    Raises:
        ExtractionError: the text is not of the form that the source says.
    """
    found: list[Any] = []
    for text in output_texts(source, outputs):
        if "json" in source:
            found += values_at_path(parse_json_document(text), source["json"])
        elif "event" in source:
            lines = [
                line for line in parse_json_lines(text) if line.get("event") == source["event"]
            ]
            found += [line[source["key"]] for line in lines if source["key"] in line]
        else:
            found += re.findall(source["regex"], text, re.MULTILINE)
    if not found:
        where = source.get("json") or source.get("event") or source.get("regex")
        raise ExtractionError(f"nothing at {where!r} in the output")
    return found


def extract_number(source: Mapping[str, Any], outputs: Mapping[str, str]) -> float:
    """The one figure a source stands for, in SI units."""
    try:
        found = extract_values(source, outputs)
        if any(value is None for value in found):
            raise ExtractionError("the tool gave no value")
        numbers = [float(value) for value in found]
    except (TypeError, ValueError) as error:
        if isinstance(error, ExtractionError):
            raise
        raise ExtractionError(f"not a number: {error}") from error
    combine = source.get("combine", "single")
    if combine == "single" and len(numbers) != 1:
        raise ExtractionError(f"{len(numbers)} values where one was expected")
    joined = {
        "single": lambda: numbers[0],
        "sum": lambda: sum(numbers),
        "mean": lambda: sum(numbers) / len(numbers),
        "minimum": lambda: min(numbers),
        "maximum": lambda: max(numbers),
    }[combine]()
    return joined * float(source.get("scale", 1))


def ready_event(line: str) -> dict[str, Any] | None:
    """A line that says that the program is ready, with its memory touched; None for any other."""
    return _event(line, "ready")


def sample_event(line: str) -> dict[str, Any] | None:
    """A line that says what was done between two times; None for any other."""
    return _event(line, "sample")


def _event(line: str, name: str) -> dict[str, Any] | None:
    if f'"{name}"' not in line or not line.startswith("{"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if document.get("event") == name else None

r"""Read values from a tool's output, as its benchmark file describes.

A *source* has the place of a text (``in``: ``stdout``, a file's name, or a pattern of names such as
``rate_bw.*.log``) and one of these ways to read the text:

``{json: "jobs[*].read.bw_bytes"}`` A path through a JSON document: keys joined by dots, ``[*]`` for
every item of a list. A key with a dot is quoted: ``clat_ns.percentile["50.000000"]``. ``{event:
done, key: valid}``
    A key of each JSON line with this ``event``.
``{regex: "Triad:\s+([0-9.]+)"}``
    The first group of every match.

``combine`` says how several values become one value: sum, mean, minimum, maximum or single (the
default, which allows only one value). ``scale`` converts the tool's unit into the SI unit. With
``amount``, the output has the seconds for this amount, and the value is the amount per second.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, describe_malformed_document
from chaosity.records.record_format import OutputName, OutputValueSource


class ExtractionError(ValueError):
    """The tool's output does not have what its benchmark file describes."""


@contextmanager
def malformed_as_extraction_error(what: str) -> Iterator[None]:
    """Turn the errors of reading malformed output into an `ExtractionError`.

    Raises:
        ExtractionError: the code in the context raised one of `ERRORS_OF_MALFORMED_DOCUMENTS`.
    """
    try:
        yield
    except ExtractionError:
        raise
    except ERRORS_OF_MALFORMED_DOCUMENTS as error:
        raise ExtractionError(f"{what}: {describe_malformed_document(error)}") from error


def output_texts_of_source(source: OutputName, outputs: Mapping[str, str]) -> list[str]:
    """Return the texts that a source names; a pattern of file names can give several texts.

    Raises:
        ExtractionError: the output is missing.
    """
    pattern = source.get("in", "stdout")
    texts = [outputs[name] for name in sorted(outputs) if fnmatch.fnmatchcase(name, pattern)]
    if not texts:
        raise ExtractionError(f"the tool wrote no output {pattern}")
    return texts


def json_path_steps(path: str) -> list[str]:
    """Return the steps of a path such as ``jobs[*].error``: ``jobs``, ``[*]`` and ``error``."""
    return [key or step for key, step in re.findall(r'\["([^"]+)"\]|([^.\[\]]+|\[\*\])', path)]


def values_at_path(document: Any, path: str) -> list[Any]:
    """Return all values at a path such as ``jobs[*].read.bw_bytes`` or ``jobs[0].error``.

    A missing key or position gives no value.
    """
    values = [document]
    for step in json_path_steps(path):
        values = [found for value in values for found in _values_at_step(value, step)]
    return values


def _values_at_step(value: Any, step: str) -> list[Any]:
    """Return the items of a list, or the value in a mapping, to which one step of a path leads."""
    if isinstance(value, list):
        positions = slice(int(step), int(step) + 1) if step.isdigit() else slice(0)
        return value if step == "[*]" else value[positions]
    return [value[step]] if isinstance(value, dict) and step in value else []


def _parse_json_document(text: str) -> Any:
    """Return the JSON document in a text; skip lines before the document, such as fio's remarks."""
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if line.startswith(("{", "["))), 0)
    with malformed_as_extraction_error("the output is not JSON"):
        return json.loads("".join(lines[first:]))


# Parsed outputs are cached, because each check and each metric of a load reads the same output.
@lru_cache(maxsize=4)
def parse_json_lines(text: str) -> tuple[dict[str, Any], ...]:
    """Return the JSON objects among the lines of a text; callers must not change the objects.

    Raises:
        ExtractionError: a line is incomplete JSON.
    """
    documents = []
    for line in text.splitlines():
        if line.startswith("{"):
            with malformed_as_extraction_error(f"a line is incomplete JSON: {line[:60]!r}"):
                documents.append(json.loads(line))
    return tuple(documents)


def extract_values(source: OutputValueSource, outputs: Mapping[str, str]) -> list[Any]:
    """Return every value that a source names, without conversion to SI units.

    Raises:
        ExtractionError: the output lacks the value.
    """
    values: list[Any] = []
    for text in output_texts_of_source(source, outputs):
        if "json" in source:
            values += values_at_path(_parse_json_document(text), source["json"])
        elif "event" in source:
            event, key = source["event"], source["key"]
            lines = (line for line in parse_json_lines(text) if line.get("event") == event)
            values += [line[key] for line in lines if key in line]
        else:
            values += re.findall(source["regex"], text, re.MULTILINE)
    if not values:
        if "regex" in source:
            raise ExtractionError(f"no line of the output matches {source['regex']!r}")
        where = source.get("json") or source.get("event")
        raise ExtractionError(f"the output has no value at {where!r}")
    return values


def extract_number(source: OutputValueSource, outputs: Mapping[str, str]) -> float:
    """Return the value that a source names, combined from several values and in SI units.

    Raises:
        ExtractionError: there is no value, a value is not a number, or there are several values
            without ``combine``.
    """
    values = extract_values(source, outputs)
    if any(value is None for value in values):
        raise ExtractionError("the tool reported no value")
    with malformed_as_extraction_error(f"the output has {values[0]!r:.60}, which is not a number"):
        numbers = [float(value) for value in values]
    combine = source.get("combine", "single")
    if combine == "single" and len(numbers) != 1:
        raise ExtractionError(f"the output has {len(numbers)} values instead of one")
    combined = {
        "single": numbers[0],
        "sum": sum(numbers),
        "mean": sum(numbers) / len(numbers),
        "minimum": min(numbers),
        "maximum": max(numbers),
    }[combine]
    value = combined * float(source.get("scale", 1))
    if "amount" not in source:
        return value
    if value <= 0:
        raise ExtractionError(f"no rate can be computed from a time of {value} s")
    return float(source["amount"]) / value


def parse_event_line(line: str, event: str) -> dict[str, Any] | None:
    """Return the JSON object in a line if its ``event`` is the given one; else None."""
    if f'"{event}"' not in line or not line.startswith("{"):
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("event") == event else None

"""Write the output that a tool would have printed for given values.

This module is the inverse of `runner.tool_output` and `runner.metric_values`. The
benchmark file says where each value is in the tool's output, so the same file says where to write
the value. No code in this module is for one tool only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from re import _constants, _parser  # type: ignore[attr-defined]  # typeshed lacks both
from typing import Any

from chaosity.records.record_format import Load, OutputValueSource
from chaosity.runner.metric_values import Samples
from chaosity.runner.tool_output import json_path_steps

# The text that is written for a character class of a pattern.
_CLASS_TEXTS = {
    _constants.CATEGORY_SPACE: " ",
    _constants.CATEGORY_DIGIT: "1",
    _constants.CATEGORY_WORD: "a",
}


class OutputWriter:
    """Collects the values of a load's output, and writes the output as the tool would.

    The load's sources say where each value is in the output.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self._events: dict[str, dict[str, dict[str, Any]]] = {}
        self._documents: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._samples: list[dict[str, Any]] = []
        self._items = max(1, len(load["target"]["drives"]))

    def put_value(self, source: OutputValueSource, value: Any) -> None:
        """Write a value to the place from which a source reads it.

        The value is in SI units, or a text; a number is converted to what the tool prints.
        """
        name = source.get("in", "stdout")
        if isinstance(value, float):
            if "amount" in source:
                value = float(source["amount"]) / value
            value /= float(source.get("scale", 1))
        if "event" in source:
            self._events.setdefault(name, {}).setdefault(source["event"], {})[source["key"]] = value
        elif "json" in source:
            if isinstance(value, float) and source.get("combine") == "sum":
                value /= self._items if "[*]" in source["json"] else 1
            steps = json_path_steps(source["json"])
            self._documents[name] = self._with_value(self._documents.get(name), steps, value)
        else:
            self._texts.setdefault(name, []).append(
                text_with_value_as_first_group(source["regex"], str(value))
            )

    def _with_value(self, document: Any, steps: Sequence[str], value: Any) -> Any:
        """Return a JSON document with a value at a path; a list gets an item for each drive."""
        if not steps:
            return value
        step, rest = steps[0], steps[1:]
        if step == "[*]":
            items = document or [None] * self._items
            return [self._with_value(item, rest, value) for item in items]
        if step.isdigit():
            items = (document or []) + [None] * (int(step) + 1 - len(document or []))
            items[int(step)] = self._with_value(items[int(step)], rest, value)
            return items
        return {**(document or {}), step: self._with_value((document or {}).get(step), rest, value)}

    def put_progress_samples(
        self, samples: Samples, details: Mapping[str, Any], realtime_minus_monotonic: float
    ) -> None:
        """Write the progress of the load.

        `samples` are begin, end (seconds on the monotonic clock) and amount of each sample,
        `details` further keys of each sample. `realtime_minus_monotonic` is in seconds.
        """
        source = self.load["progress"]
        if source is None:
            return
        scale = float(source.get("time_scale", 1))
        offset = realtime_minus_monotonic if source.get("clock") == "realtime" else 0.0
        if columns := source.get("csv"):  # a file for each drive, a row for each interval
            unit = float(source.get("rate_scale", 1)) * self._items
            rows = []
            for begin, end, amount in samples:
                row = [0] * (1 + max(columns["end"], columns["rate"]))
                row[columns["end"]] = round((end + offset) / scale)
                row[columns["rate"]] = round(amount / (end - begin) / unit)
                rows.append(", ".join(map(str, row)))
            for item in range(self._items):
                self._texts[source.get("in", "stdout").replace("*", str(item + 1))] = rows
            return
        self._samples = [
            {
                "event": source["event"],
                source["begin"]: round((begin + offset) / scale),
                source["end"]: round((end + offset) / scale),
                source["amount"]: amount,
                **details,
            }
            for begin, end, amount in samples
        ]

    def outputs(self) -> dict[str, str]:
        """Return name -> raw output of the load."""
        progress = self.load["progress"] or {}
        texts = {"stdout": "", "stderr": ""}
        for name in {*self._events, *([progress.get("in", "stdout")] if self._samples else [])}:
            lines = [{"event": event, **keys} for event, keys in self._events.get(name, {}).items()]
            if name == progress.get("in", "stdout"):
                lines[1:1] = self._samples
            texts[name] = "".join(json.dumps(line) + "\n" for line in lines)
        for name, document in self._documents.items():
            texts[name] = json.dumps(document) + "\n"
        for name, parts in self._texts.items():
            texts[name] = texts.get(name, "") + "".join(f"{part}\n" for part in parts)
        return texts


def text_with_value_as_first_group(pattern: str, value: str) -> str:
    """Return a text that matches a pattern, with `value` as the first group."""
    return _text_of_tokens(_parser.parse(pattern, re.MULTILINE), value)


def _text_of_tokens(tokens: Any, value: str) -> str:
    """Return the shortest text that matches a parsed pattern; its group becomes `value`."""
    text = ""
    for kind, argument in tokens:
        if kind is _constants.LITERAL:
            text += chr(argument)
        elif kind is _constants.SUBPATTERN:
            text += value if argument[0] == 1 else _text_of_tokens(argument[3], value)
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            text += _text_of_tokens(argument[2], value) * argument[0]
        elif kind is _constants.IN:
            text += _text_of_tokens(argument[:1], value)
        elif kind is _constants.CATEGORY:
            text += _CLASS_TEXTS[argument]
        elif kind is _constants.RANGE:
            text += chr(argument[0])
        elif kind is _constants.BRANCH:
            text += _text_of_tokens(argument[1][0], value)
        elif kind is _constants.ANY:
            text += "x"
    return text

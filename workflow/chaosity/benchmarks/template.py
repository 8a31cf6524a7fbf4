"""Fills in a benchmark file for one load.

Everything there is to know of a benchmark stands in its YAML file; this module knows none by name.
Texts in the file are Jinja2 templates; an unknown variable in one is an error, not an empty word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from chaosity.config import BENCHMARKS, load_benchmark
from chaosity.errors import UserError

ENVIRONMENT = Environment(
    loader=FileSystemLoader(BENCHMARKS.parent),
    undefined=StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@lru_cache(maxsize=4096)
def compiled(text: str) -> Any:
    """A template, compiled once however many points use it."""
    return ENVIRONMENT.from_string(text)


class Benchmark:
    """One benchmark file.

    Args:
        document: the file's content, already checked.
        parameters: values from the config that replace the file's own.
    """

    def __init__(self, document: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self.document = document
        self.name: str = document["benchmark"]
        self.parameters = {**document.get("parameters", {}), **parameters}

    @property
    def kernels(self) -> dict[str, Any]:
        """Kernels it offers, by the name that experiments use; empty when it has none."""
        return self.document.get("kernels", {})

    @property
    def reports_progress(self) -> bool:
        """Whether its loads tell how far they are, with time stamps."""
        return "progress" in self.document

    def fill(self, text: str | float | None, context: Mapping[str, Any]) -> str:
        """One text of the file, filled in.

        Raises:
            UserError: it uses a variable that there is not.
        """
        if not isinstance(text, str):
            return str(text)
        if "{" not in text:
            return text
        try:
            return compiled(text).render(context)
        except (TemplateError, TypeError) as error:
            raise UserError(f"{text!r} cannot be filled in: {error}", self.where) from error

    def fill_number(self, text: str | float | None, context: Mapping[str, Any]) -> float | None:
        """A text that stands for a number; ``None`` stays unknown."""
        filled = self.fill(text, context)
        if filled in ("None", ""):
            return None
        try:
            return float(filled)
        except ValueError:
            raise UserError(f"{text!r} gives {filled!r}, not a number", self.where) from None

    @property
    def where(self) -> str:
        """The file, for error messages."""
        return f"templates/benchmarks/{self.name}.yaml"

    def load(self, name: str, context: Mapping[str, Any]) -> dict[str, Any]:
        """The load's concrete form: command, files and checks, as the runner takes it.

        Args:
            name: the load's name in the experiment.
            context: variables for the templates: initiator, target, kernel, array_bytes, times.
        """
        document = self.document
        context = {**context, "parameters": self.parameters}
        memory = self.fill_number(document.get("memory_bytes", 0), context)
        return {
            "name": name,
            "benchmark": self.name,
            "category": document["category"],
            "label": document.get("label"),
            "kernel": context["kernel_name"],
            "needs": document["needs"],
            "memory_bytes": int(memory or 0),
            "writes": document.get("writes", False),
            "files": {
                file: self.job_file(template, context)
                for file, template in document.get("files", {}).items()
            },
            "environment": {
                key: self.fill(text, context)
                for key, text in document.get("environment", {}).items()
            },
            "command": [self.fill(word, context) for word in document["command"]],
            "start": document["start"],
            "stop": document["stop"],
            "progress": document.get("progress"),
            "metrics": {
                metric: self.metric(source, context)
                for metric, source in document["metrics"].items()
            },
            "valid": [self.rule(rule, context) for rule in document["valid"]],
        }

    def job_file(self, template: str, context: Mapping[str, Any]) -> str:
        """A file that the tool reads, from its template below ``templates/``."""
        try:
            return ENVIRONMENT.get_template(template).render(context)
        except (TemplateError, TypeError) as error:
            raise UserError(f"cannot be filled in: {error}", f"templates/{template}") from error

    def metric(self, source: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """Where a metric's value is found, with its upper bound as a number or null."""
        bound = self.fill_number(source.get("at_most"), context)
        filled = {
            key: self.fill(value, context) if isinstance(value, str) else value
            for key, value in source.items()
        }
        return {**filled, "at_most": bound}

    def rule(self, rule: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """A check of the tool's output, filled in."""
        return {
            key: self.fill(value, context) if isinstance(value, str) else value
            for key, value in rule.items()
        }

    def seconds(self, rule: Mapping[str, Any], context: Mapping[str, Any]) -> float:
        """How long a run is expected to take under a stopping rule, without its set-up."""
        given = self.document.get("estimate_seconds")
        if given is not None:
            return self.fill_number(given, {**context, "parameters": self.parameters}) or 0.0
        if rule["relative_precision"] is None:
            return rule["max_seconds"]
        return math.fsum([rule["min_seconds"], rule["max_seconds"]]) / 2


def open_benchmarks(config: Mapping[str, Any]) -> dict[str, Benchmark]:
    """The benchmark that serves each category, by the config."""
    return {
        category: Benchmark(load_benchmark(name), config["parameters"].get(name, {}))
        for category, name in config["benchmarks"].items()
    }

"""Fills in a benchmark file for one load.

Everything there is to know of a benchmark stands in its YAML file; this module knows none by name.
Texts in the file are Jinja2 templates; an unknown variable in one is an error, not an empty word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
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
# Stands between texts that are filled in together; in no text that a person writes.
SEPARATOR = "\x1f"


@lru_cache(maxsize=4096)
def compiled(text: str) -> Any:
    """A template, compiled once however many points use it."""
    return ENVIRONMENT.from_string(text)


def gather(part: Any, templates: list[str]) -> None:
    """Collect every text below a part of the file, in order."""
    if isinstance(part, str):
        templates.append(part)
    elif isinstance(part, Mapping):
        for value in part.values():
            gather(value, templates)
    elif isinstance(part, list):
        for value in part:
            gather(value, templates)


def put_back(part: Any, filled: Iterator[str]) -> Any:
    """The same part with its texts replaced by the filled ones, in order."""
    if isinstance(part, str):
        return next(filled)
    if isinstance(part, Mapping):
        return {key: put_back(value, filled) for key, value in part.items()}
    if isinstance(part, list):
        return [put_back(value, filled) for value in part]
    return part


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

    @property
    def platform(self) -> str:
        """The operating system whose commands it has."""
        return self.document.get("platform", "linux")

    @property
    def where(self) -> str:
        """The file, for error messages."""
        return f"templates/benchmarks/{self.name}.yaml"

    def fill(self, texts: Sequence[str], context: Mapping[str, Any]) -> list[str]:
        """Texts of the file, filled in; as one template, since setting one up is what costs.

        Raises:
            UserError: one uses a variable that there is not.
        """
        try:
            return compiled(SEPARATOR.join(texts)).render(context).split(SEPARATOR)
        except (TemplateError, TypeError) as error:
            for text in texts:
                if len(texts) > 1:
                    self.fill([text], context)  # names the one that cannot be filled in
            raise UserError(f"{texts[0]!r} cannot be filled in: {error}", self.where) from error

    def fill_number(self, text: str, context: Mapping[str, Any]) -> float | None:
        """A text that stands for a number; ``None`` stays unknown."""
        return self.number(text, self.fill([text], context)[0])

    def number(self, text: str, filled: str) -> float | None:
        """What a filled text says as a number.

        Raises:
            UserError: it is none.
        """
        if filled in ("None", ""):
            return None
        try:
            return float(filled)
        except ValueError:
            raise UserError(f"{text!r} gives {filled!r}, not a number", self.where) from None

    @cached_property
    def skeleton(self) -> dict[str, Any]:
        """The parts of the file that go into a load; its texts are templates."""
        document = self.document
        bounds = {name: source.get("at_most") for name, source in document["metrics"].items()}
        return {
            "memory_bytes": str(document.get("memory_bytes", 0)),
            "environment": document.get("environment", {}),
            "command": document["command"],
            "metrics": document["metrics"],
            "valid": document["valid"],
            "bounds": {name: str(bound) for name, bound in bounds.items()},
        }

    def load(
        self, name: str, context: Mapping[str, Any], varied: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The load's concrete form: command, files and checks, as the runner takes it.

        Args:
            name: of the load, of its own within its point.
            context: variables for the templates: initiator, target, kernel, array_bytes, times.
            varied: parameters that the experiment varies, in place of the file's and the config's.
        """
        document = self.document
        context = {**context, "parameters": {**self.parameters, **(varied or {})}}
        templates: list[str] = []
        gather(self.skeleton, templates)
        filled = put_back(self.skeleton, iter(self.fill(templates, context)))
        filled["command"] = [word for word in filled["command"] if word]
        environment = filled["environment"]
        filled["environment"] = {name: text for name, text in environment.items() if text}
        bounds = filled.pop("bounds")
        for metric, source in filled["metrics"].items():
            source["at_most"] = self.number(metric, bounds[metric])
        return {
            **filled,
            "name": name,
            "benchmark": self.name,
            "category": document["category"],
            "label": document.get("label"),
            "kernel": context["kernel_name"],
            "needs": document["needs"],
            "memory_bytes": int(self.number("memory_bytes", filled["memory_bytes"]) or 0),
            "writes": document.get("writes", False),
            "files": {
                file: self.job_file(template, context)
                for file, template in document.get("files", {}).items()
            },
            "start": document["start"],
            "stop": document["stop"],
            "progress": document.get("progress"),
            **({"notes": document["notes"]} if "notes" in document else {}),
        }

    def job_file(self, template: str, context: Mapping[str, Any]) -> str:
        """A file that the tool reads, from its template below ``templates/``."""
        try:
            return ENVIRONMENT.get_template(template).render(context)
        except (TemplateError, TypeError) as error:
            raise UserError(f"cannot be filled in: {error}", f"templates/{template}") from error

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

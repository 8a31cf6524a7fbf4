"""Fill in the templates of a benchmark file for a load, and find the events of counters.

Everything about a benchmark is in its YAML file, so this module names no benchmark. The texts in a
benchmark file are Jinja2 templates. An unknown variable in a template is an error. Everything about
the events of a processor is in the files below templates/counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateError

from chaosity.documents.benchmarks import BenchmarkDocument, KernelNameAndArrayCount
from chaosity.documents.config import Config
from chaosity.documents.reference_data import CounterEventsDocument, EventCode
from chaosity.documents.shipped_documents import (
    BENCHMARKS_FOLDER,
    COUNTERS_FOLDER,
    load_benchmark,
    read_document,
    yaml_file_names,
)
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.records.record_format import (
    CounterEvent,
    CounterEventsOrReason,
    Level,
    Load,
    PointStoppingRule,
)
from chaosity.topology.topology_parts import HostFacts

JINJA_ENVIRONMENT = Environment(
    loader=FileSystemLoader(BENCHMARKS_FOLDER.parent),
    undefined=StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
# Signs that begin an expression of Jinja2. A text in which no expression begins is constant.
_JINJA_MARKS = ("{{", "{%", "{#")


@lru_cache(maxsize=4096)
def _compile_template(text: str) -> Template:
    """Return the compiled template of a text; each text is compiled only once."""
    return JINJA_ENVIRONMENT.from_string(text)


class LoadMaker:
    """Makes the loads of one benchmark from its YAML file and the `parameters` in the config."""

    def __init__(self, document: BenchmarkDocument, parameters: Mapping[str, Level]) -> None:
        self.document = document
        self.name = document["benchmark"]
        self.parameters: dict[str, Level] = {**document.get("parameters", {}), **parameters}
        # Name of a kernel in experiments -> the kernel; empty if the benchmark has no kernels.
        self.kernels: dict[str, KernelNameAndArrayCount] = document.get("kernels", {})
        self.operating_system_of_commands: str = document.get("platform", "linux")
        self.file_path = f"templates/benchmarks/{self.name}.yaml"  # for error messages

    def _fill_templates(self, part: Any, context: Mapping[str, Any]) -> Any:
        """Return a part of the benchmark file with all templates filled in."""
        if isinstance(part, Mapping):
            return {key: self._fill_templates(value, context) for key, value in part.items()}
        if isinstance(part, list):
            return [self._fill_templates(value, context) for value in part]
        if not isinstance(part, str) or not any(mark in part for mark in _JINJA_MARKS):
            return part
        try:
            return _compile_template(part).render(context)
        except (TemplateError, TypeError) as error:
            what = f"the template {part!r} cannot be filled in: {error}"
            raise UserError(what, self.file_path) from error

    def _fill_number_template(self, text: str, filled: str) -> float | None:
        """Return the number in the filled-in text; None if the text is empty or "None"."""
        try:
            return None if filled in ("None", "") else float(filled)
        except ValueError:
            what = f"the template {text!r} gives {filled!r}, which is not a number"
            raise UserError(what, self.file_path) from None

    def defining_parts_of_load(self, load: Load) -> dict[str, Any]:
        """Return those parts of a load of which the fingerprint of the point is made.

        Notes, and bounds that follow from the memory modules, are left out, since they do not
        change a measurement. To keep older records valid, metrics have the names that older records
        use, and metrics that older records lack are left out.
        """
        metrics = {}
        for name, source in load["metrics"].items():
            known = {key: value for key, value in source.items() if key != "formerly"}
            if "memory_peak_bytes_per_second" in str(self.document["metrics"][name].get("at_most")):
                known["at_most"] = None
            if former := source.get("formerly", name):
                metrics[former] = known
        return {**{key: v for key, v in load.items() if key != "notes"}, "metrics": metrics}

    def make_load(
        self, name: str, context: Mapping[str, Any], varied: Mapping[str, Level] | None = None
    ) -> Load:
        """Return a load with its command, files and checks, still without endpoints and placement.

        `name` is unique within the load's point. `context` has the variables for the templates.
        `varied` has the parameters that the experiment varies, which replace the config's values.
        """
        document = self.document
        context = {**context, "parameters": {**self.parameters, **(varied or {})}}
        environment = self._fill_templates(document.get("environment", {}), context)
        memory = self._fill_templates(str(document.get("memory_bytes", 0)), context)
        metrics = {}
        for metric, source in document["metrics"].items():
            filled = self._fill_templates(source, context)
            bound = self._fill_number_template(metric, str(filled.get("at_most")))
            metrics[metric] = {**filled, "at_most": bound}
        load = {
            "memory_bytes": int(self._fill_number_template("memory_bytes", memory) or 0),
            "environment": {key: text for key, text in environment.items() if text},
            "command": [
                word for word in self._fill_templates(document["command"], context) if word
            ],
            "metrics": metrics,
            "valid": self._fill_templates(document["valid"], context),
            "name": name,
            "benchmark": self.name,
            "category": document["category"],
            "label": document.get("label"),
            "kernel": context["kernel_name"],
            "needs": document["needs"],
            "writes": document.get("writes", False),
            "files": {
                file: self._fill_job_file(template, context)
                for file, template in document.get("files", {}).items()
            },
            "start": document["start"],
            "stop": document["stop"],
            "progress": document.get("progress"),
        }
        if "notes" in document:
            load["notes"] = document["notes"]
        return cast(Load, load)

    def _fill_job_file(self, template: str, context: Mapping[str, Any]) -> str:
        """Return the text of a file that the tool reads; `template` is below ``templates/``."""
        try:
            return JINJA_ENVIRONMENT.get_template(template).render(context)
        except (TemplateError, TypeError) as error:
            what = f"the template cannot be filled in: {error}"
            raise UserError(what, f"templates/{template}") from error

    def expected_seconds(self, rule: PointStoppingRule, context: Mapping[str, Any]) -> float:
        """Return how many seconds a run with this stopping rule probably takes without set-up."""
        given = self.document.get("estimate_seconds")
        if given is not None:
            filled = self._fill_templates(given, {**context, "parameters": self.parameters})
            return self._fill_number_template(given, filled) or 0.0
        if rule["relative_precision"] is None:
            return rule["max_seconds"]
        return (rule["min_seconds"] + rule["max_seconds"]) / 2


def load_benchmark_of_each_category(config: Config) -> dict[str, LoadMaker]:
    """Return category of loads -> the benchmark that the config selects for this category."""
    return {
        category: LoadMaker(load_benchmark(name), config["parameters"].get(name, {}))
        for category, name in config["benchmarks"].items()
    }


@cache
def read_counter_files() -> tuple[CounterEventsDocument, ...]:
    """Return the checked content of every file below templates/counters."""
    return tuple(
        read_document(COUNTERS_FOLDER, name, CounterEventsDocument, "templates/counters")
        for name in yaml_file_names(COUNTERS_FOLDER)
    )


def find_counter_events(
    names: Iterable[str], host: HostFacts, where: str
) -> dict[str, CounterEventsOrReason]:
    """Return counter -> the host's events that count it, or the reason why there are none.

    `names` are counters in the benchmark file `where`. `host` has the facts in `Topology.host`.

    Raises:
        UserError: no file has a counter of a given name.
    """
    known = {name for document in read_counter_files() for name in document["events"]}
    found = {}
    for name in names:
        check_name_is_allowed(name, known, f"unknown counter {name!r}", f"{where}, counters")
        found[name] = _events_of_counter(name, host)
    return found


def _events_of_counter(name: str, host: HostFacts) -> CounterEventsOrReason:
    # The returned reason is a part of the definition of a point, so a change of its words causes a
    # new measurement of the point.
    document = next(
        (file for file in read_counter_files() if _matches_processor_of_host(file, host)), None
    )
    if document is None:
        numbers = [host.get(key) for key in ("cpu_vendor", "cpu_family", "cpu_model_number")]
        known = "{} family {} model {}".format(*numbers)
        processor = "this processor" if None in numbers else known
        return {"reason": f"which events count it is not known for {processor}"}
    if name not in document["events"]:
        return {"reason": f"{document['summary']}: has no events that count it"}
    vendor = host["cpu_vendor"]
    events: list[CounterEvent] = [
        {
            "event": event["event"],
            "config": encode_x86_event(vendor, event),
            "sign": event.get("sign", 1),
        }
        for event in document["events"][name]
    ]
    return {"events": events, "source": document["source"]}


def encode_x86_event(vendor: str | None, event: EventCode) -> int:
    """Return the number that selects an event in Linux, see /sys/devices/cpu/format.

    Bits 0 to 7 are the event code, and bits 8 to 15 are the unit mask. On AMD processors, bits 32
    to 35 are the upper four bits of the event code.
    """
    code, mask = event["code"], event["umask"]
    high = (code >> 8) << 32 if vendor == "AuthenticAMD" else 0
    return (code & 0xFF) | (mask << 8) | high


def _matches_processor_of_host(document: CounterEventsDocument, host: HostFacts) -> bool:
    """Return whether a file of events is for the host's processor."""
    try:
        family = int(host.get("cpu_family") or "")
        model = int(host.get("cpu_model_number") or "")
    except ValueError:  # some architectures lack these numbers
        return False
    return any(
        processor["vendor"] == host.get("cpu_vendor")
        and processor["family"] == family
        and any(
            model == models if isinstance(models, int) else models[0] <= model <= models[1]
            for models in processor["models"]
        )
        for processor in document["processors"]
    )

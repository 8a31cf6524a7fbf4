"""Find the processor events of a counter, such as last_level_misses_local_memory, on a host.

Everything about the events of a processor is in the files below templates/counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from chaosity.documents.counters import CounterEventsDocument, EventCode
from chaosity.documents.shipped_documents import COUNTERS, read_document, yaml_file_names
from chaosity.errors import check_allowed
from chaosity.records.point_types import CounterEvent, CounterRequest
from chaosity.topology.host_fact_types import HostFacts


@cache
def read_counter_files() -> tuple[CounterEventsDocument, ...]:
    """Return the checked content of every file below templates/counters."""
    return tuple(
        read_document(COUNTERS, name, CounterEventsDocument, "templates/counters")
        for name in yaml_file_names(COUNTERS)
    )


def find_counter_events(
    names: Iterable[str], host: HostFacts, where: str
) -> dict[str, CounterRequest]:
    """Return the events of each counter on a host, or the reason why it has none.

    `names` are the counters of the benchmark file `where`. `host` has the facts in `Topology.host`.

    Raises:
        UserError: no file has a counter of a given name.
    """
    known = {name for document in read_counter_files() for name in document["events"]}
    found = {}
    for name in names:
        check_allowed(name, known, f"unknown counter {name!r}", f"{where}, counters")
        found[name] = _counter(name, host)
    return found


def _counter(name: str, host: HostFacts) -> CounterRequest:
    # A point's definition includes its reason. Points with a changed reason are measured again.
    document = next((file for file in read_counter_files() if _is_for(file, host)), None)
    if document is None:
        return {"reason": f"which events count it is not known for {_processor(host)}"}
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
    """Return the number by which the Linux kernel knows an event, see /sys/devices/cpu/format.

    Bits 0 to 7 are the event code, 8 to 15 the unit mask. On AMD processors, bits 32 to 35 are the
    upper four bits of the event code.
    """
    code, mask = event["code"], event["umask"]
    high = (code >> 8) << 32 if vendor == "AuthenticAMD" else 0
    return (code & 0xFF) | (mask << 8) | high


def _is_for(document: CounterEventsDocument, host: HostFacts) -> bool:
    """Return whether a file of events is for the host's processor."""
    try:
        family = int(host.get("cpu_family") or "")
        model = int(host.get("cpu_model_number") or "")
    except ValueError:  # not every architecture has these numbers
        return False
    return any(
        processor["vendor"] == host.get("cpu_vendor")
        and processor["family"] == family
        and any(_within(model, models) for models in processor["models"])
        for processor in document["processors"]
    )


def _within(model: int, models: int | list[int]) -> bool:
    first, last = (models, models) if isinstance(models, int) else models
    return first <= model <= last


def _processor(host: HostFacts) -> str:
    """Return the host's processor as a text of the numbers that the files use."""
    family, model = host.get("cpu_family"), host.get("cpu_model_number")
    vendor = host.get("cpu_vendor")
    if None in (vendor, family, model):
        return "this processor"
    return f"{vendor} family {family} model {model}"

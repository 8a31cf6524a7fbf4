"""What a host's processor counts: from names such as last_level_misses_local_memory to its events.

Everything there is to know of a processor's events stands in a file below templates/counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from chaosity.config import COUNTERS, load_named_yaml, suggest_allowed, yaml_names
from chaosity.errors import UserError


@cache
def counter_files() -> tuple[dict[str, Any], ...]:
    """Every file below templates/counters, checked."""
    return tuple(
        load_named_yaml(COUNTERS, name, "templates/counters", "counters")
        for name in yaml_names(COUNTERS)
    )


def counter_events_of(
    names: Iterable[str], host: Mapping[str, Any], where: str
) -> dict[str, dict[str, Any]]:
    """The events of each counter on a host, or the reason why it has none.

    Args:
        names: of the counters, as a benchmark file lists them.
        host: facts of the host, see `topology.host`.
        where: the benchmark file, for errors.

    Raises:
        UserError: no processor has a counter of such a name.
    """
    known = {name for document in counter_files() for name in document["events"]}
    found = {}
    for name in names:
        if name not in known:
            raise UserError(
                f"there is no counter {name!r}", f"{where}, counters", suggest_allowed(name, known)
            )
        found[name] = _counter(name, host)
    return found


def _counter(name: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """Events of one counter as the runner takes them, or the reason."""
    own = next((one for one in counter_files() if _is_for(one, host)), None)
    if own is None:
        return {"reason": f"which events count it is not known for {_processor(host)}"}
    if name not in own["events"]:
        return {"reason": f"{own['summary']}: has no events that count it"}
    events = [
        {
            "event": one["event"],
            "config": encoded(host["cpu_vendor"], one),
            "sign": one.get("sign", 1),
        }
        for one in own["events"][name]
    ]
    return {"events": events, "source": own["source"]}


def encoded(vendor: str, event: Mapping[str, Any]) -> int:
    """An event as the kernel's driver for x86 takes it: the format in /sys/devices/cpu/format.

    Bits 0 to 7 are the event, 8 to 15 the unit's mask; AMD puts four more bits of the event at 32.
    """
    code, mask = event["code"], event["umask"]
    high = (code >> 8) << 32 if vendor == "AuthenticAMD" else 0
    return (code & 0xFF) | (mask << 8) | high


def _is_for(document: Mapping[str, Any], host: Mapping[str, Any]) -> bool:
    """Whether a file is about a host's processor."""
    try:
        family, model = int(host["cpu_family"]), int(host["cpu_model_number"])
    except (KeyError, TypeError, ValueError):  # not every architecture has such numbers
        return False
    return any(
        one["vendor"] == host.get("cpu_vendor")
        and one["family"] == family
        and any(_within(model, models) for models in one["models"])
        for one in document["processors"]
    )


def _within(model: int, models: int | list[int]) -> bool:
    if isinstance(models, int):
        return model == models
    first, last = models
    return first <= model <= last


def _processor(host: Mapping[str, Any]) -> str:
    """A processor in the numbers by which files know it."""
    vendor, family, model = (host.get(key) for key in
                             ("cpu_vendor", "cpu_family", "cpu_model_number"))  # fmt: skip
    if None in (vendor, family, model):
        return "this processor"
    return f"{vendor} family {family} model {model}"

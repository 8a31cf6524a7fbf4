"""Name a host's accelerators other than GPUs: PCI devices, and units of its processor.

Each file in templates/accelerators describes a kind of accelerators. An accelerator of no such kind
is named by its PCI class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from chaosity.documents.reference_data import AcceleratorDocument
from chaosity.documents.shipped_documents import ROOT, read_document, yaml_file_names
from chaosity.topology.hwloc import HwlocObject
from chaosity.topology.topology_parts import Accelerator, HostFacts
from chaosity.topology.topology_sources import SysfsReader
from chaosity.units import join_with_and

if TYPE_CHECKING:
    from chaosity.topology.topology_model import Topology

_FOLDER = ROOT / "templates" / "accelerators"
# PCI class -> kind of accelerator (PCI Code and ID Assignment Specification).
_CLASSES = {"0b40": "coprocessor", "1080": "encryption", "1200": "accelerator"}
# hwloc's numbers of the types of devices of the operating system.
_OSDEV_DMA, _OSDEV_COPROCESSOR = "4", "5"
_OTHER_KIND = "Not measured: no load uses it."


@cache
def accelerator_kinds() -> tuple[AcceleratorDocument, ...]:
    """Return the content of each file in templates/accelerators."""
    names = yaml_file_names(_FOLDER)
    documents = (read_document(_FOLDER, n, AcceleratorDocument, str(_FOLDER)) for n in names)
    return tuple(cast(AcceleratorDocument, document) for document in documents)


def accelerators_in_processor(facts: HostFacts) -> Iterator[Accelerator]:
    """Yield the accelerators that the processor's flags or model show."""
    has = set(facts.get("cpu_flags") or ())
    for kind in accelerator_kinds():
        flags = [flag for flag in kind.get("flags", ()) if flag in has]
        model = facts.get("cpu_model") or ""
        if flags or ("cpu_model" in kind and re.match(kind["cpu_model"], model)):
            shown = " ".join(flags) or model
            yield Accelerator(shown, kind["name"], None, None, None, kind.get("part_of"))


class PciAcceleratorMaker:
    """Makes the accelerators of PCI functions; `node_of` returns the nearest node of a function."""

    def __init__(self, sysfs: SysfsReader, node_of: Callable[[HwlocObject], int | None]) -> None:
        self._sysfs, self._node_of = sysfs, node_of

    def accelerators_of_function(self, function: HwlocObject) -> Iterator[Accelerator]:
        """Yield the accelerator of a PCI function; of an unknown kind, each of its devices."""
        pci, driver = function.pci_address, None
        names = self._sysfs.list_directory(f"sys/bus/pci/devices/{pci}") if pci else []
        if (events := self._sysfs.read_text(f"sys/bus/pci/devices/{pci}/uevent")) is not None:
            found = re.search(r"^DRIVER=(.+)$", events, re.MULTILINE)
            driver = found[1] if found else "none"
        devices = [
            item
            for item in function.objects_of_type("OSDev")
            if item.attributes.get("osdev_type") in (_OSDEV_DMA, _OSDEV_COPROCESSOR)
        ]
        node = self._node_of(function)
        for kind in accelerator_kinds():
            number = rf"{kind.get('device_names', '(?!)')}\d+"
            own = [name for name in names if re.fullmatch(number, name)]
            if own or function.pci_id in kind.get("pci", ()) or driver in kind.get("drivers", ()):
                # hwloc lists several channels for copies; all are of a single accelerator.
                yield Accelerator(own[0] if own else pci or "", kind["name"], pci, node, driver)
                return
        kind_of_class = _CLASSES.get(function.pci_class)
        for item in devices:
            channel = "DMA" if item.attributes["osdev_type"] == _OSDEV_DMA else item.subtype
            name = kind_of_class or channel or "coprocessor"
            yield Accelerator(item.name or pci or "", name, pci, node, driver)
        if kind_of_class and not devices:
            yield Accelerator(pci or kind_of_class, kind_of_class, pci, node, driver)


def sentence_on_what_is_not_measured(kind: str) -> str:
    """Return the sentence that says what of a kind of accelerators is not measured."""
    return next((k["not_measured"] for k in accelerator_kinds() if k["name"] == kind), _OTHER_KIND)


def accelerators_of_known_kinds(accelerators: Iterable[Accelerator]) -> list[Accelerator]:
    """Return the accelerators whose kind has a file in templates/accelerators."""
    names = {kind["name"] for kind in accelerator_kinds()}
    return [each for each in accelerators if each.kind in names]


def accelerator_texts(topology: Topology) -> list[tuple[str, str, str]]:
    """Return kind, places, and what is not measured, for each kind of a host's accelerators."""
    titles = {kind["name"]: kind["title"] for kind in accelerator_kinds()}
    kinds: dict[str, list[Accelerator]] = {}
    for each in topology.accelerators:
        kinds.setdefault(each.kind, []).append(each)
    return [
        (
            f"{kind} ({titles[kind]})" if kind in titles else kind,
            _places_text(found),
            sentence_on_what_is_not_measured(kind),
        )
        for kind, found in kinds.items()
    ]


def _places_text(found: Sequence[Accelerator]) -> str:
    """Return "4 on node 0 and 4 on node 1, driver idxd", or "in each core (amx_tile)"."""
    first = found[0]
    if first.part_of == "cores":
        return f"in each core ({first.name})"
    if first.part_of:
        return f"in the processor ({first.name})"
    numbers = Counter(each.node for each in found)
    places = [
        f"{number} on {'an unknown node' if node is None else f'node {node}'}"
        for node, number in sorted(
            numbers.items(), key=lambda item: (item[0] is None, item[0] or 0)
        )
    ]
    drivers = sorted({each.driver for each in found if each.driver})
    known = [
        f"driver {driver}" if driver != "none" else "some without a driver" for driver in drivers
    ]
    if drivers == ["none"]:
        known = ["no driver"]
    return ", ".join([join_with_and(places), *known])

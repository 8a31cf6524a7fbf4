"""Which memory modules sit in which slot, and how fast they run.

SMBIOS tells it, to root alone: of a live machine through dmidecode, of others through what hwloc
put into the XML. A slot without a module is listed too, for an empty channel costs bandwidth.
"""

from __future__ import annotations

from chaosity.topology.fact_types import MemoryModule
from chaosity.topology.hwloc_xml import HwlocTree

# dmidecode's names -> ours, for the values that a person would compare.
_FIELDS = {
    "Locator": "slot",
    "Bank Locator": "bank",
    "Size": "size",
    "Type": "type",
    "Rank": "ranks",
    "Speed": "speed",
    "Configured Memory Speed": "configured_speed",
    "Configured Clock Speed": "configured_speed",  # dmidecode before 3.2
    "Manufacturer": "manufacturer",
    "Part Number": "part",
    "Serial Number": "serial",
}
_SAYS_NOTHING = frozenset({"", "Unknown", "Not Specified", "None", "NO DIMM", "Not Provided"})


def parse_dmidecode(text: str) -> list[MemoryModule]:
    """The memory devices in what `dmidecode --type 17` prints, in its order."""
    modules: list[dict[str, str | None]] = []
    for line in text.splitlines():
        if line.strip() == "Memory Device":
            modules.append({})
        elif modules and line.startswith(("\t", "  ")) and ":" in line:
            key, _, value = line.strip().partition(":")
            if key in _FIELDS:
                said = value.strip()
                modules[-1][_FIELDS[key]] = None if said in _SAYS_NOTHING else said
    return modules


def modules_of_tree(tree: HwlocTree) -> list[MemoryModule] | None:
    """The modules that hwloc found, or None when it looked without root or SMBIOS."""
    items = [item for item in tree.machine.all("Misc") if item.subtype == "MemoryModule"]
    names = {
        "slot": "DeviceLocation",
        "bank": "BankLocation",
        "manufacturer": "Vendor",
        "part": "PartNumber",
        "serial": "SerialNumber",
    }
    return [
        {key: item.infos.get(name, "").strip() or None for key, name in names.items()}
        for item in items
    ] or None

"""Read the memory modules of this host from the firmware's SMBIOS table (DMTF DSP0134, type 17)."""

from __future__ import annotations

from pathlib import Path
from struct import unpack_from

# Size in bytes, speed x width in bytes per second, and the names of slot and bank.
MemoryModule = tuple[int, int, str]

_MEMORY_DEVICE, _END_OF_TABLE = 17, b"\x7f"
# Types of modules, without LPDDR of unknown width -> lowest number in MT/s that is no clock. Before
# SMBIOS 3.1 firmware could state the clock: half of it: at most 1066 (DDR3), 1600 (DDR4).
_LOWEST_DATA_RATE = {0x18: 1333, 0x1A: 2133, 0x22: 0}
_PERSISTENT = 0x1F  # on the channels of other modules, so it adds no bandwidth
_DIMM_BITS = 64  # data width of a DIMM without error correction; for DDR5 it is 2 x 32 bits


def read_memory_modules() -> list[MemoryModule] | str:
    """Return this host's modules of DDR3, DDR4 or DDR5, or the reason why they are unknown."""
    try:
        return parse_memory_modules(Path("/sys/firmware/dmi/tables/DMI").read_bytes())
    except FileNotFoundError:
        return "the firmware of this host has no SMBIOS table"
    except PermissionError:
        return "only root can read the SMBIOS table"
    except OSError as error:
        return f"the SMBIOS table could not be read: {error.strerror}"


def parse_memory_modules(table: bytes) -> list[MemoryModule] | str:
    """Return the memory modules in an SMBIOS table, or the reason why they are unknown.

    A structure has fields of the length in its header, then texts that end with a zero, then a
    zero. A table without its end marker is cut off, so modules may be missing.
    """
    modules, at = list[MemoryModule](), 0
    while table[at : at + 1] != _END_OF_TABLE:
        kind, length = (*table[at : at + 2], 0, 0)[:2]
        end = table.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return "the SMBIOS table is damaged"
        if kind == _MEMORY_DEVICE:
            found = _parse_memory_device(table[at : at + length], table[at + length : end])
            if isinstance(found, str):
                return found
            modules += found
        at = end + 2
    return modules or "the SMBIOS table lists no memory module"


def _parse_memory_device(fields: bytes, texts: bytes) -> list[MemoryModule] | str:
    """Return the module in a structure, nothing for an empty slot, or why it is unknown."""
    fields = fields.ljust(0x5C, b"\0")  # older tables have fewer fields
    width, size = unpack_from("<HH", fields, 0x0A)
    slot, bank, kind = fields[0x10:0x13]
    if size == 0 or kind == _PERSISTENT:
        return []
    if kind not in _LOWEST_DATA_RATE:
        return "a memory module is of another type than DDR3, DDR4 and DDR5"
    size_bytes = (size & 0x7FFF) << (10 if size & 0x8000 else 20)  # in KiB or MiB
    if size == 0x7FFF:  # 32 GiB or more
        size_bytes = (unpack_from("<I", fields, 0x1C)[0] & 0x7FFFFFFF) << 20
    rate = unpack_from("<H", fields, 0x20)[0]
    if rate == 0xFFFF:
        rate = unpack_from("<I", fields, 0x58)[0] & 0x7FFFFFFF
    if not rate or size == 0xFFFF:
        return "the firmware does not state sizes and configured speeds of memory modules"
    rate *= 2 if rate < _LOWEST_DATA_RATE[kind] else 1
    bits = max(width if width < 0xFFFF else 0, _DIMM_BITS)
    words = ["", *texts.decode("latin-1").split("\0")]
    locator = " ".join(words[n] for n in (slot, bank) if n < len(words))
    return [(size_bytes, rate * 1_000_000 * bits // 8, locator)]

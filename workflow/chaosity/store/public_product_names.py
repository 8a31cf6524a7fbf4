"""The texts of firmware and memory that may be published: each has a form of its own.

Vendors and people can write anything into these texts: an address, a path, an asset number. So a
text is published only if its form says what it is. No form has room for an e-mail address, a path,
a name with dots or a UUID.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TypeGuard

# A part of a word: letters, or digits with or without letters. A part with digits has up to 17
# signs in the model of a drive (MTFDKCC15T3TFR), and 8 in that of a processor (5995WX).
_LETTERS = r"[A-Za-z]{1,15}(?![A-Za-z0-9])"
_WITH_DIGITS = r"(?=[A-Za-z]*\d)[A-Za-z0-9]{{1,{most}}}(?![A-Za-z0-9])"
_MARKS = r"(?:\((?:R|TM|r|tm)\))?\+?"


def _words(most: int) -> str:
    """Return the form of words with at most `most` signs in a part with digits."""
    part = f"(?:{_LETTERS}|{_WITH_DIGITS.format(most=most)})"
    word = rf"(?:{part}(?:-{part}){{0,2}}{_MARKS}|\d{{1,4}}\.\d{{1,2}}[A-Za-z]{{0,2}}\+?)"
    return rf"{word}(?:[ _](?:{word}|\({part}\))){{0,9}}"


# Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz; Intel Xeon Processor (Skylake, IBRS).
_PROCESSOR = re.compile(
    rf"{_words(8)}(?: \([A-Za-z0-9-]{{1,20}}(?:, [A-Za-z]{{1,20}})*\))?(?: @ \d\.\d{{1,2}}GHz)?"
)
_DEVICE = re.compile(_words(17))
# As long as NVMe allows. Four numbers would be an address, in this form and in the next ones.
_DEVICE_FIRMWARE = re.compile(r"(?=.{1,8}\Z)(?=.*\d)[A-Za-z0-9]+([._+-][A-Za-z0-9]+){0,2}")
_VERSION = re.compile(r"\d{1,3}(\.\d{1,4}){0,2}(?!\.?\d)((a|b|rc|\.dev|\.post)\d{1,5})?")
# Some tools remove the dot at the end.
_BIOS_VENDORS = (
    *("AMI", "American Megatrends Inc", "American Megatrends International, LLC", "Amazon EC2"),
    *("ASUSTeK COMPUTER INC", "Apple Inc", "Bochs", "Cisco Systems, Inc", "Dell Inc", "EDK II"),
    *("EFI Development Kit II / OVMF", "FUJITSU", "GIGABYTE", "Google", "HP", "HPE", "Huawei"),
    *("Hewlett Packard Enterprise", "IBM", "Insyde Corp", "Inspur", "Intel Corp", "Lenovo"),
    *("Intel Corporation", "Microsoft Corporation", "NVIDIA", "Phoenix Technologies Ltd", "QEMU"),
    *("Quanta", "SeaBIOS", "Silicon Graphics International Corp", "Supermicro", "U-Boot", "Xen"),
    *("VMware, Inc", "coreboot", "innotek GmbH"),
)
_BIOS_VENDOR = re.compile(
    rf"({'|'.join(sorted(map(re.escape, _BIOS_VENDORS), key=len, reverse=True))})\.?(?= |\Z)", re.I
)
_BIOS_VERSION = re.compile(r"[A-Za-z]{0,2}\d{1,3}(\.\d{1,4}){0,2}[a-z]?")
_MICROCODE = re.compile(r"microcode 0x[0-9a-f]{1,8}")
_MODULES = re.compile(
    r"\d{1,4} x (No Module Installed|\d{1,6} [kMGT]i?B( (LP)?DDR\d?[A-Z]?| HBM\d?[A-Z]?| DRAM)?"
    r"( \d{3,5} (MT/s|MHz))?)"
)


def public_processor(text: object) -> str | None:
    """Return the name of a processor's model if it has the form of one, else None."""
    return text if isinstance(text, str) and _PROCESSOR.fullmatch(text[:101]) else None


def public_device_model(text: object, private: Collection[str] = ()) -> str | None:
    """Return the name of a drive's or GPU's model if it has the form of one, else None.

    Model and serial numbers have the same form, so a text that contains one of the texts `private`,
    such as the device's serial number, is not published.
    """
    return text if _is_public(text, _DEVICE, private) else None


def public_device_firmware(text: object, private: Collection[str] = ()) -> str | None:
    """Return the version of a device's firmware if it has the form of one, else None."""
    return text if _is_public(text, _DEVICE_FIRMWARE, private) else None


def _is_public(text: object, form: re.Pattern[str], private: Collection[str]) -> TypeGuard[str]:
    if not isinstance(text, str) or not form.fullmatch(text[:101]):
        return False
    return not any(secret and secret.lower() in text.lower() for secret in private)


def public_host_firmware(text: object) -> str | None:
    """Return the known vendor, the version and the microcode in a text on the host's firmware.

    What has another form is left out. The result is None if nothing is left.
    """
    if not isinstance(text, str):
        return None
    vendor = _BIOS_VENDOR.match(text)
    words = text[vendor.end() if vendor else 0 :].split()
    found = [vendor[0]] if vendor else []
    found += [word for word in words[:1] if vendor and _BIOS_VERSION.fullmatch(word)]
    found += [end for end in (" ".join(words[-2:]),) if _MICROCODE.fullmatch(end)]
    return " ".join(found) or None


def public_memory(text: object) -> str | None:
    """Return the kinds of memory modules in a text, such as "16 x 32 GB DDR4 3200 MT/s"."""
    kinds = text.split(", ") if isinstance(text, str) else []
    return ", ".join(kind for kind in kinds if _MODULES.fullmatch(kind)) or None


def public_version(text: object) -> str | None:
    """Return the public part of this program's version: 0.1.0 of 0.1.0+g129bb35a."""
    found = _VERSION.match(text) if isinstance(text, str) else None
    return found[0] if found else None

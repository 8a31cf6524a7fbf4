"""Types of the facts on a host (firmware, processor, kernel, settings) with the keys of their JSON.

A key is missing if the kind of source cannot have the fact: an hwloc XML file has no kernel
settings. None means that this source does not have the value.
"""

from __future__ import annotations

from typing import TypedDict


class MemoryModuleSlot(TypedDict, total=False):
    """A slot for a memory module, in the words of SMBIOS; an empty slot has no `size`."""

    slot: str | None
    bank: str | None
    size: str | None
    type: str | None
    ranks: str | None
    speed: str | None
    configured_speed: str | None
    manufacturer: str | None
    part: str | None
    serial: str | None


class FrequencySettings(TypedDict):
    """How the kernel chooses frequencies: lists of the distinct values of all processing units."""

    drivers: list[str]
    governors: list[str]
    energy_preferences: list[str]
    lower_limits_hertz: list[int]
    upper_limits_hertz: list[int]
    turbo: bool | None


class IdleSettings(TypedDict):
    """The idle driver and governor, and the sleep states that are switched off."""

    driver: str | None
    governor: str | None
    disabled_states: list[str]


class HostFacts(TypedDict, total=False):
    """All facts on a host; `name` is the host's own name for itself."""

    name: str | None
    firmware: dict[str, str | None]
    cpu_model: str | None
    cpu_vendor: str | None
    cpu_family: str | None
    cpu_model_number: str | None
    cpu_stepping: str | None
    architecture: str | None
    operating_system: str | None
    cpu_flags: list[str]
    kernel_release: str | None
    kernel_version: str | None
    memory_modules: list[MemoryModuleSlot] | None
    microcode: str | None
    hypervisor: bool
    kernel_parameters: list[str]
    smt: str | None
    frequency: FrequencySettings
    idle: IdleSettings
    memory_settings: dict[str, str | None]
    mitigations: dict[str, str | None]

"""Types of the devices in the model of a host: drives, GPUs, OpenCL devices and accelerators.

`node` is None if the locality of a device is unknown; it never means "local everywhere".
"""

from __future__ import annotations

from dataclasses import dataclass

# Facts of an OpenCL device that are in no point. A fact that is new asks for no new measurement.
NOT_IN_POINTS = ("unified_memory", "shared_virtual_memory")


@dataclass(frozen=True)
class NvmeDrive:
    """An NVMe namespace, or an NVMe function without a block device, whose `name` is None.

    `name` may change from boot to boot; `pci` identifies the slot and `serial` the drive.
    `link_bytes_per_second` is the bandwidth of the PCI link without encoding overhead, an upper
    bound for every measured bandwidth. `link_max_bytes_per_second` is the bandwidth of the fastest
    link that drive and slot support.
    """

    name: str | None = None
    pci: str | None = None
    serial: str | None = None
    model: str | None = None
    firmware: str | None = None
    node: int | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    link_max_bytes_per_second: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU, listed once even if several libraries (`backends`) show it.

    `compute` is False for a device that only drives a display.
    """

    name: str | None = None
    pci: str | None = None
    backends: tuple[str, ...] = ()
    node: int | None = None
    model: str | None = None
    serial: str | None = None
    memory_bytes: int | None = None
    compute: bool = True


@dataclass(frozen=True)
class OpenclDevice:
    """A device as OpenCL shows it: a GPU, an accelerator, or (`type` cpu) the processor itself.

    Points use `name`. OpenCL's own names are `platform` and `device`; `twin` numbers the devices
    with equal names. A device with the `pci` address of a `Gpu` is that GPU. A processor has no
    `pci` address.

    `unified_memory` says whether the host and the device use the same memory.
    `shared_virtual_memory` is the finest sharing of memory by host and device: coarse_grain, where
    buffers are handed over; fine_grain, where host and device use buffers at the same time;
    fine_grain_system, for all memory of the host; or none. Each attribute is None if unknown.
    """

    name: str
    platform: str
    device: str
    type: str
    twin: int = 0
    vendor: str | None = None
    driver: str | None = None
    compute_units: int | None = None
    memory_bytes: int | None = None
    pci: str | None = None
    uuid: str | None = None
    node: int | None = None
    unified_memory: bool | None = None
    shared_virtual_memory: str | None = None

    @property
    def memory_text(self) -> str:
        """Return how the device's memory relates to the host's; empty if unknown."""
        unified = {True: "the host's memory", False: "its own memory", None: ""}
        shared = self.shared_virtual_memory
        sharing = f"shared {shared.replace('_', ' ')}" if shared not in (None, "none") else ""
        return ", ".join(filter(None, (unified[self.unified_memory], sharing)))

    @property
    def is_processor(self) -> bool:
        """Return whether the device is the host's own processor, which PoCL shows to OpenCL."""
        return self.type == "cpu"


@dataclass(frozen=True)
class Nic:
    """A port of a network card; `name` is the kernel's name. The card's address is never read.

    `link_bytes_per_second` is the negotiated rate in one direction; None without a link.
    """

    name: str
    kind: str
    pci: str | None = None
    model: str | None = None
    node: int | None = None
    link_bytes_per_second: int | None = None


@dataclass(frozen=True)
class Accelerator:
    """An engine for copies, compression or cryptography, or a coprocessor."""

    name: str
    kind: str
    pci: str | None
    node: int | None

"""Writes small captured /sys trees, as the kernels of imagined machines would show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaosity.cpusets import format_cpu_list, format_mask, parse_cpu_list

KIB, GIB = 1024, 2**30


@dataclass(frozen=True)
class CapturedNode:
    """A node as /sys shows it."""

    cpus: str
    gib: int
    distances: Iterable[int] = ()


@dataclass(frozen=True)
class CapturedDrive:
    """An NVMe drive with one namespace."""

    pci: str
    name: str
    node: int
    serial: str = "S0"
    speed: str = "16.0 GT/s PCIe"
    width: int = 4


@dataclass(frozen=True)
class CapturedFunction:
    """A PCI function; `folder` is what the driver's own device adds below it."""

    pci: str
    number: str  # of vendor and device, such as 8086:0b25
    pci_class: str
    node: int
    driver: str | None = None
    folder: str | None = None


@dataclass
class Capture:
    """A machine to be written below a directory; every core has one processing unit."""

    nodes: Mapping[int, CapturedNode]
    packages: Mapping[int, str]
    drives: Iterable[CapturedDrive] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    functions: Iterable[CapturedFunction] = ()

    def write(self, root: Path) -> Path:
        """Writes the tree and returns its root."""
        cpus = [c for text in self.packages.values() for c in parse_cpu_list(text)]
        online = format_cpu_list(cpus)
        for name in ("online", "possible", "present"):
            _write(root, f"sys/devices/system/cpu/{name}", online)
        for package, text in self.packages.items():
            for cpu in parse_cpu_list(text):
                self._cpu(root, cpu, package, text)
        for index, node in self.nodes.items():
            self._node(root, index, node)
        lists = {
            "online": self.nodes,
            "possible": self.nodes,
            "has_memory": [index for index, node in self.nodes.items() if node.gib],
            "has_cpu": [index for index, node in self.nodes.items() if node.cpus],
        }
        for name, indexes in lists.items():
            _write(root, f"sys/devices/system/node/{name}", format_cpu_list(indexes))
        for drive in self.drives:
            _drive(root, drive)
        for function in self.functions:
            _function(root, function)
        for path, text in self.files.items():
            _write(root, path, text)
        return root

    def _cpu(self, root: Path, cpu: int, package: int, siblings: str) -> None:
        base = f"sys/devices/system/cpu/cpu{cpu}/topology"
        _write(root, f"{base}/physical_package_id", str(package))
        _write(root, f"{base}/core_id", str(cpu))
        for name in ("thread_siblings", "core_cpus"):
            _write(root, f"{base}/{name}", _kernel_mask([cpu]))
        for name in ("core_siblings", "package_cpus"):
            _write(root, f"{base}/{name}", _kernel_mask(parse_cpu_list(siblings)))

    def _node(self, root: Path, index: int, node: CapturedNode) -> None:
        base = f"sys/devices/system/node/node{index}"
        _write(root, f"{base}/cpulist", node.cpus)
        _write(root, f"{base}/cpumap", _kernel_mask(parse_cpu_list(node.cpus)))
        _write(root, f"{base}/meminfo", f"Node {index} MemTotal: {node.gib * GIB // KIB} kB")
        if node.distances:
            _write(root, f"{base}/distance", " ".join(map(str, node.distances)))


def _function(root: Path, function: CapturedFunction) -> str:
    """Write a PCI function, and return the path of its folder."""
    device = f"sys/devices/pci0000:00/{function.pci}"
    vendor, _, number = function.number.partition(":")
    bound = f"DRIVER={function.driver}\n" if function.driver else ""
    config = {
        "vendor": f"0x{vendor}",
        "device": f"0x{number}",
        "class": f"0x{function.pci_class}00",
        "subsystem_vendor": f"0x{vendor}",
        "subsystem_device": "0x0000",
        "revision": "0x00",
        "numa_node": str(function.node),
        "uevent": f"{bound}PCI_CLASS={function.pci_class}00\nPCI_ID={function.number.upper()}",
    }
    for name, text in config.items():
        _write(root, f"{device}/{name}", text)
    if function.folder:
        _write(root, f"{device}/{function.folder}/state", "enabled")
    target = Path(f"../../../devices/pci0000:00/{function.pci}")
    _link(root / f"sys/bus/pci/devices/{function.pci}", target)
    return device


def _drive(root: Path, drive: CapturedDrive) -> None:
    device = _function(root, CapturedFunction(drive.pci, "144d:a900", "0108", drive.node, "nvme"))
    block = f"{device}/nvme/{drive.name.partition('n1')[0]}/{drive.name}"
    files = {
        f"{device}/current_link_speed": drive.speed,
        f"{device}/current_link_width": str(drive.width),
        f"{device}/max_link_speed": "32.0 GT/s PCIe",
        f"{device}/max_link_width": "4",
        f"{block}/../serial": f"{drive.serial}  ",
        f"{block}/../model": "DRIVE X  ",
        f"{block}/../firmware_rev": "1.0  ",
        f"{block}/size": str(2**31),
        f"{block}/dev": "259:0",
    }
    for name, text in files.items():
        _write(root, name, text)
    _link(root / f"{block}/device", Path(".."))
    target = Path(f"../../{block.removeprefix('sys/')}")
    _link(root / f"sys/class/block/{drive.name}", target)


def _write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _kernel_mask(cpus: Iterable[int]) -> str:
    return format_mask(cpus).replace("0x", "")

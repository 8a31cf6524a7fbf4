"""The role's Python, imported as on a host, and a kernel made of files to try it on."""

from __future__ import annotations

import errno
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils

ROLE = Path(__file__).resolve().parents[3] / "roles/host_state"
# Where Ansible looks for what a role's modules share.
ansible.module_utils.__path__.append(str(ROLE / "module_utils"))

from ansible.module_utils import host_settings as settings  # noqa: E402
from ansible.module_utils import kernel_files  # noqa: E402

BOOT = "proc/sys/kernel/random/boot_id"
THP = "sys/kernel/mm/transparent_hugepage"
CPUS = "sys/devices/system/cpu"
UNCORE = f"{CPUS}/intel_uncore_frequency/package_00_die_00"
POLICY = f"{CPUS}/cpufreq/policy"
INTEL = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\n"
AMD = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n"
REGISTERS = {INTEL: 0x1A4, AMD: 0xC0000108}
# CPUs 2 and 3 are the SMT siblings of CPUs 0 and 1; policy 1 is their clock.
SIBLINGS = (2, 3)
# A machine with a gap in its nodes and three clocks, the third with its CPUs offline.
FILES = {
    BOOT: "first",
    "proc/sys/kernel/numa_balancing": "1",
    f"{THP}/enabled": "always [madvise] never",
    f"{THP}/defrag": "always defer defer+madvise [madvise] never",
    "sys/devices/system/cpu/cpufreq/boost": "1",
    **{
        f"sys/devices/system/cpu/cpufreq/policy{number}/{name}": text
        for number, cpus in ((0, "0 1"), (1, "2 3"), (2, ""))
        for name, text in {
            "affected_cpus": cpus,
            "scaling_available_governors": "performance powersave",
            "scaling_governor": "powersave",
            "energy_performance_preference": "balance_performance",
            "boost": str(1 - number % 2),
            "cpuinfo_min_freq": "800000",
            "cpuinfo_max_freq": "3600000",
            "scaling_min_freq": "1000000",
            "scaling_max_freq": str(3000000 + 100000 * number),
        }.items()
    },
    "proc/cpuinfo": INTEL,
    f"{CPUS}/smt/control": "on",
    **{
        f"{CPUS}/cpu{cpu}/cpuidle/state{number}/{name}": text
        for cpu in range(4)
        for number, latency in enumerate((0, 2, 133))
        for name, text in {"latency": str(latency), "disable": str(int(cpu == 1))}.items()
    },
    **{
        f"{UNCORE}/{name}_freq_khz": text
        for name, text in {
            "initial_min": "800000",
            "initial_max": "2400000",
            "min": "800000",
            "max": "2200000",
        }.items()
    },
    **{
        f"sys/devices/system/node/node{node}/{name}": text
        for node in (0, 2, 10)
        for name, text in {
            "meminfo": f"Node {node} MemTotal: 8388608 kB\nNode {node} MemFree: 1048576 kB",
            "compact": "",
            "hugepages/hugepages-2048kB/nr_hugepages": "7",
            "hugepages/hugepages-1048576kB/nr_hugepages": "0",
        }.items()
    },
    "sys/kernel/mm/mempolicy/weighted_interleave/auto": "true",
    **{
        f"sys/kernel/mm/mempolicy/weighted_interleave/node{node}": weight
        for node, weight in (("0", "5"), ("2", "5"), ("10", "2"))
    },
}


class Kernel(kernel_files.Host):
    """Files of a fake tree that answer a write as a kernel does, side effects included."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        # Huge pages that a node gives at most, by the kernel's name for their size.
        self.most = {"2048kB": 1500, "1048576kB": 3}
        self.knows_bandwidths = True
        # Dies before this write; None: never.
        self.writes_left: int | None = None

    def write(self, name: str, value: str) -> None:
        """Write as the kernel would."""
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise KeyboardInterrupt
            self.writes_left -= 1
        folder, _, file = name.rpartition("/")
        path = self.root / name
        if kernel_files.REGISTER.fullmatch(name):
            super().write(name, value)
            return
        self._refuse_if_offline(name)
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        if folder == THP:
            if value not in self.read_words(name):
                raise OSError(errno.EINVAL, "Invalid argument", name)
            value = " ".join(
                f"[{word}]" if word == value else word for word in self.read_words(name)
            )
        elif file == "nr_hugepages":
            value = str(min(int(value), self.most[folder.rsplit("-", 1)[1]]))
        elif "weighted_interleave/node" in name:
            (self.root / folder / "auto").write_text("false")
        elif file == "auto" and value == "true":
            if not self.knows_bandwidths:
                raise OSError(errno.ENODEV, "No such device", name)
            for own in FILES:
                if own.startswith(f"{folder}/node"):
                    (self.root / own).write_text(FILES[own])
        elif file == "scaling_governor" and value == "performance":
            (self.root / folder / "energy_performance_preference").write_text("performance")
        elif file == "boost" and folder.endswith("cpufreq"):
            for number in (0, 1):
                if not self._is_offline(f"{POLICY}{number}/boost"):
                    (self.root / f"{POLICY}{number}/boost").write_text(value)
                    (self.root / f"{POLICY}{number}/scaling_max_freq").write_text("3600000")
        elif limit := settings.CLOCK_LIMIT_FILE.fullmatch(name):
            is_lower = limit.group(1) == "min"
            words = ("min", "max") if is_lower else ("max", "min")
            other = int(self.read(name.replace(*words)))
            if int(value) > other if is_lower else int(value) < other:
                raise OSError(errno.EINVAL, "Invalid argument", name)
        elif name == settings.SMT:
            path.write_text(value)
            for cpu in SIBLINGS:
                file, away = (self.root / f"dev/cpu/{cpu}/{each}" for each in ("msr", "away"))
                if value == "off" and file.exists():
                    file.rename(away)
                elif value == "on" and away.exists():
                    away.rename(file)
        path.write_text(value)

    def read_words(self, name: str) -> list[str]:
        self._refuse_if_offline(name)
        return super().read_words(name)

    def read(self, name: str) -> str:
        self._refuse_if_offline(name)
        return super().read(name)

    def _is_offline(self, name: str) -> bool:
        control = self.root / settings.SMT
        siblings_are_off = control.exists() and control.read_text() == "off"
        return name.startswith(f"{POLICY}2/") or (
            siblings_are_off and name.startswith(f"{POLICY}1/")
        )

    def _refuse_if_offline(self, name: str) -> None:
        if self._is_offline(name):
            raise OSError(errno.EBUSY, "Device or resource busy", name)

    def put_registers(self, processor: str) -> None:
        """Give every CPU the register of a processor's prefetchers, with another bit set."""
        (self.root / "proc/cpuinfo").write_text(processor)
        for cpu in range(4):
            file = self.root / f"dev/cpu/{cpu}/msr"
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as content:
                content.seek(REGISTERS[processor])
                content.write((1 << 60).to_bytes(8, "little"))

    def registers(self) -> list[str]:
        """The number in the register of every CPU that has its file."""
        number = REGISTERS[(self.root / "proc/cpuinfo").read_text()]
        files = self.find_files("dev/cpu/[0-9]*/msr")
        return [self.read(f"{file}@{number:#x}") for file in files]

    def tree(self) -> dict[str, str]:
        """All files that keep what is written, and what is in them."""
        kept = (name for name in FILES if not name.endswith("/compact"))
        files = {name: (self.root / name).read_text() for name in kept}
        return {**files, "registers": " ".join(self.registers())}


def kernel(root: Path, **files: str) -> Kernel:
    """A fresh fake kernel below a folder."""
    for name, text in {**FILES, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "tmp").mkdir(exist_ok=True)
    found = Kernel(root)
    found.put_registers(INTEL)
    return found


def load() -> ModuleType:
    """The role's module."""
    where = importlib.util.spec_from_file_location("host_state", ROLE / "library/host_state.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


host_state = load()


class Try:
    """What the two playbooks do, on a fake kernel."""

    def __init__(self, root: Path) -> None:
        self.kernel = kernel(root)
        self.file = root / "var/lib/chaosity/host_state.json"
        (root / "var/lib").mkdir(parents=True)

    def configure(self, check: bool = False, **wanted: Any) -> dict[str, Any]:
        """As configure.yml."""
        return host_state.run(self.kernel, str(self.file), wanted, restore=False, check=check)

    def restore(self, check: bool = False) -> dict[str, Any]:
        """As configure.yml with host_state_restore."""
        return host_state.run(self.kernel, str(self.file), {}, restore=True, check=check)

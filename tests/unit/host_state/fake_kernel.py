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

BOOT = "proc/sys/kernel/random/boot_id"
THP = "sys/kernel/mm/transparent_hugepage"
# A machine with a gap in its nodes and two clocks, the second with its CPUs offline.
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


class Kernel(settings.Host):
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
            for policy in (self.root / folder).glob("policy*/boost"):
                policy.write_text(value)
        path.write_text(value)

    def tree(self) -> dict[str, str]:
        """All files that keep what is written, and what is in them."""
        kept = (name for name in FILES if not name.endswith("/compact"))
        return {name: (self.root / name).read_text() for name in kept}


def kernel(root: Path, **files: str) -> Kernel:
    """A fresh fake kernel below a folder."""
    for name, text in {**FILES, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "tmp").mkdir(exist_ok=True)
    return Kernel(root)


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
        """As restore.yml."""
        return host_state.run(self.kernel, str(self.file), {}, restore=True, check=check)

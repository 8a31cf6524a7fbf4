"""The machine as QEMU is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virtual_lab.numa_layout import (
    Machine,
    Node,
    finest,
    node_in_mode,
    nodes_of,
    pairs,
)
from virtual_lab.system_image import ROOT_PARTITION

# Names within a machine's folder. QEMU starts in there: a socket's path may have 107 characters.
DISK, DRIVES, CREDENTIALS = "disk.qcow2", "drives", "credentials"
PID, QMP, CONSOLE = "qemu.pid", "qmp.sock", "console.log"
EMULATION = "tcg,thread=multi"
# Bus numbers that a machine has for all of its host bridges.
_BUSES = 256
# The system drive must not outrun its link, which QEMU says has one lane at 250 MB/s.
_SYSTEM_BYTES_PER_SECOND = 200_000_000
_KERNEL_COMMAND = (
    f"root={ROOT_PARTITION} rootwait rw console=ttyS0 loglevel=4"
    # Cost a lot under emulation and protect nothing here.
    " mitigations=off nowatchdog"
    # Says "stalled" when it is the host that is slow.
    " rcupdate.rcu_cpu_stall_timeout=120"
    # The console is a file, and there is no host to reach over a VM socket.
    " systemd.log_color=no systemd.show_status=yes TERM=dumb systemd.ssh_auto=no"
)


def drive_id(index: int) -> str:
    """What QEMU calls the drive at a place in the description's list."""
    return f"drive{index}"


def drive_image(serial: str) -> str:
    """Where a drive's bytes are, within the machine's folder."""
    return f"{DRIVES}/{serial}.img"


def qemu_arguments(
    machine: Machine, mode: str, folder: Path, accelerator: str = EMULATION
) -> list[str]:
    """The command line of a machine, to be run in its folder.

    Args:
        machine: its complete description.
        mode: the firmware mode that it comes up in, one of its ``modes``.
        folder: its folder; credentials, disk and drives are below it.
        accelerator: what QEMU's ``-accel`` takes.
    """
    nodes = nodes_of(machine, mode)
    return [
        *("qemu-system-x86_64", "-name", machine["name"], "-nodefaults", "-no-user-config"),
        *("-machine", "q35,hmat=on" if machine["hmat"] else "q35"),
        *("-accel", accelerator, "-cpu", _model(machine), "-display", "none"),
        *("-daemonize", "-pidfile", PID, "-qmp", f"unix:{QMP},server=on,wait=off"),
        *("-chardev", f"file,id=console,path={CONSOLE}", "-serial", "chardev:console"),
        *_processors(machine),
        *_nodes(machine, nodes),
        *_system(machine, folder),
        *_drives(machine, mode, folder),
    ]


def _model(machine: Machine) -> str:
    """The processor, which calls itself by the maker whose modes the machine has.

    NPS is AMD's word and SNC is Intel's, and who names a mode looks at the processor's name.
    """
    names = {"nps": "AMD EPYC (virtual)", "snc": "Intel Xeon (virtual)"}
    name = names.get(next(iter(machine["modes"]))[:3])
    return f"max,model-id={name}" if name else "max"


def _processors(machine: Machine) -> Iterator[str]:
    packages, cores, dies = machine["packages"], machine["cpus_per_package"], 1
    if not machine["interleaved_cpus"] and cores % finest(machine) == 0:
        # QEMU gives each die an L3 cache, so each of the finest nodes is an L3 domain too.
        dies = finest(machine)
    yield from (
        "-smp",
        f"cpus={packages * cores},sockets={packages},dies={dies},cores={cores // dies},threads=1",
    )


def _nodes(machine: Machine, nodes: list[Node]) -> Iterator[str]:
    total = sum(node.memory_bytes for node in nodes)
    yield from ("-m", f"{total // 2**20}M")
    for number, node in enumerate(nodes):
        words = ["node", f"nodeid={number}", *(f"cpus={cpu}" for cpu in node.cpus)]
        if node.memory_bytes:
            size = f"{node.memory_bytes // 2**20}M"
            yield from ("-object", f"memory-backend-ram,id=memory{number},size={size}")
            words.append(f"memdev=memory{number}")
        if machine["hmat"]:
            words.append(f"initiator={number if node.cpus else _closest(nodes, node)}")
        yield from ("-numa", ",".join(words))
    for one, other, kind in pairs(nodes):
        yield from ("-numa", f"dist,src={one},dst={other},val={machine['distances'][kind]}")
    yield from _memory_attributes(machine, nodes)


def _closest(nodes: list[Node], memory: Node) -> int:
    """The node whose processing units are closest to a node that has none."""
    near = (i for i, node in enumerate(nodes) if node.cpus and node.package == memory.package)
    return next(near)


def _memory_attributes(machine: Machine, nodes: list[Node]) -> Iterator[str]:
    """The HMAT: how fast each node with processing units reaches each that has memory."""
    for one, other, kind in pairs(nodes):
        if not (machine["hmat"] and nodes[one].cpus and nodes[other].memory_bytes):
            continue
        about = f"hmat-lb,initiator={one},target={other},hierarchy=memory"
        speed = machine["hmat"][kind]
        # The table counts in MiB per second.
        bandwidth = f"{speed['bandwidth_bytes_per_second'] // 2**20}M"
        yield from ("-numa", f"{about},data-type=access-latency,latency={speed['latency_ns']}")
        yield from ("-numa", f"{about},data-type=access-bandwidth,bandwidth={bandwidth}")


def _system(machine: Machine, folder: Path) -> Iterator[str]:
    """Kernel, identity, system disk and network."""
    yield from ("-kernel", f"{machine['image']}/vmlinuz")
    # With multipath, QEMU's drives go by names like nvme0c0n1, which are no device nodes.
    paths = "Y" if machine["nvme_multipath"] else "N"
    words = f"nvme_core.multipath={paths} systemd.hostname={machine['name']}"
    yield from ("-append", f"{_KERNEL_COMMAND} {words}")
    # By file, for the arguments of a process are public.
    for path in ("host_key", "authorized_keys"):
        yield from ("-smbios", f"type=11,path={_quoted(folder / CREDENTIALS / path)}")
    disk = f"file={_quoted(folder / DISK)},if=none,id=system,format=qcow2"
    yield from ("-drive", f"{disk},throttling.bps-read={_SYSTEM_BYTES_PER_SECOND}")
    yield from ("-device", "nvme,drive=system,serial=system")
    forward = f"hostfwd=tcp:127.0.0.1:{machine['ssh_port']}-:22"
    yield from ("-netdev", f"user,id=network,{forward}")
    yield from ("-device", "virtio-net-pci,netdev=network", "-device", "virtio-rng-pci")


def _drives(machine: Machine, mode: str, folder: Path) -> Iterator[str]:
    parts = sorted({drive["node"] for drive in machine["drives"]} - {None})
    # A host bridge for each of the finest nodes in every mode, as in a real server: what a mode
    # changes is the node that a bridge belongs to, and never a drive's PCI address.
    step = _BUSES // (len(parts) + 1)
    for place, part in enumerate(parts, start=1):
        node = node_in_mode(machine, mode, part)
        yield "-device"
        yield f"pxb-pcie,id=bridge{part},bus=pcie.0,bus_nr={step * place},numa_node={node}"
    for index, drive in enumerate(machine["drives"]):
        bus = "pcie.0" if drive["node"] is None else f"bridge{drive['node']}"
        name, image = drive_id(index), _quoted(folder / drive_image(drive["serial"]))
        speed = drive["read_bytes_per_second"]
        yield from ("-device", f"pcie-root-port,id=port{index},bus={bus},chassis={index + 1}")
        yield "-drive"
        yield f"file={image},if=none,id={name},format=raw,throttling.bps-read={speed}"
        yield from ("-device", f"nvme,drive={name},serial={drive['serial']},bus=port{index}")


def _quoted(path: Path) -> str:
    """A path within one of QEMU's comma-separated options."""
    return str(path).replace(",", ",,")

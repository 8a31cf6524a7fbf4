"""Builds the command line with which QEMU runs a machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virtual_lab.build_system_disk import ROOT_PARTITION
from virtual_lab.numa_layout import (
    Machine,
    Node,
    most_nodes_per_package,
    node_in_mode,
    node_pairs,
    nodes_in_mode,
)

# Names in a machine's folder. QEMU starts in this folder: a socket's path may have 107 characters.
DISK, DRIVES, CREDENTIALS = "disk.qcow2", "drives", "credentials"
PID, QMP, CONSOLE = "qemu.pid", "qmp.sock", "console.log"
EMULATION = "tcg,thread=multi"
# Bus numbers that a machine has for all of its host bridges.
_BUSES = 256
# The system drive must not be faster than its link: QEMU reports one lane with 250 MB/s.
_SYSTEM_BYTES_PER_SECOND = 200_000_000
_KERNEL_COMMAND = (
    f"root={ROOT_PARTITION} rootwait rw console=ttyS0 loglevel=4"
    # These mitigations cost a lot under emulation and protect nothing here.
    " mitigations=off nowatchdog"
    # On a slow computer the default limit reports CPUs as stalled.
    " rcupdate.rcu_cpu_stall_timeout=120"
    # The console is a file, and no host listens on a VM socket.
    " systemd.log_color=no systemd.show_status=yes TERM=dumb systemd.ssh_auto=no"
)


def qemu_drive_name(index: int) -> str:
    """Return QEMU's name of the drive with this index in the description's list."""
    return f"drive{index}"


def image_node_names(index: int) -> tuple[str, str]:
    """Return QEMU's names of a drive's format node and of the node of its file below."""
    return f"{qemu_drive_name(index)}-raw", f"{qemu_drive_name(index)}-file"


def drive_image_path(serial: str) -> str:
    """Return the path of a drive's image, relative to the machine's folder."""
    return f"{DRIVES}/{serial}.img"


def qemu_arguments(
    machine: Machine, mode: str, folder: Path, accelerator: str = EMULATION
) -> list[str]:
    """Return the command that starts a machine; run it in the machine's folder.

    Args:
        machine: complete description of the machine.
        mode: the firmware mode in which it boots, one of its ``modes``.
        folder: the machine's folder, with its credentials, disk and drives.
        accelerator: value of QEMU's ``-accel``.
    """
    nodes = nodes_in_mode(machine, mode)
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
    """Return the processor model, named after the manufacturer that has the machine's modes.

    NPS is AMD's term and SNC is Intel's; chaosity names modes by the processor's manufacturer.
    """
    names = {"nps": "AMD EPYC (virtual)", "snc": "Intel Xeon (virtual)"}
    name = names.get(next(iter(machine["modes"]))[:3])
    return f"max,model-id={name}" if name else "max"


def _processors(machine: Machine) -> Iterator[str]:
    packages, cores, dies = machine["packages"], machine["cpus_per_package"], 1
    if not machine["interleaved_cpus"] and cores % most_nodes_per_package(machine) == 0:
        # QEMU gives each die an L3 cache, so each of the finest nodes is an L3 domain too.
        dies = most_nodes_per_package(machine)
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
    for one, other, kind in node_pairs(nodes):
        yield from ("-numa", f"dist,src={one},dst={other},val={machine['distances'][kind]}")
    yield from _memory_attributes(machine, nodes)


def _closest(nodes: list[Node], memory: Node) -> int:
    """Return the nearest node with processing units for a node without any."""
    near = (i for i, node in enumerate(nodes) if node.cpus and node.package == memory.package)
    return next(near)


def _memory_attributes(machine: Machine, nodes: list[Node]) -> Iterator[str]:
    """Yield the HMAT: latency and bandwidth from each node with processing units to each memory."""
    for one, other, kind in node_pairs(nodes):
        if not (machine["hmat"] and nodes[one].cpus and nodes[other].memory_bytes):
            continue
        about = f"hmat-lb,initiator={one},target={other},hierarchy=memory"
        speed = machine["hmat"][kind]
        # The table counts in MiB per second.
        bandwidth = f"{speed['bandwidth_bytes_per_second'] // 2**20}M"
        yield from ("-numa", f"{about},data-type=access-latency,latency={speed['latency_ns']}")
        yield from ("-numa", f"{about},data-type=access-bandwidth,bandwidth={bandwidth}")


def _system(machine: Machine, folder: Path) -> Iterator[str]:
    """Yield the options for kernel, keys, system disk and network."""
    yield from ("-kernel", f"{machine['image']}/vmlinuz")
    # With multipath, QEMU's drives have names like nvme0c0n1, which are not device nodes.
    paths = "Y" if machine["nvme_multipath"] else "N"
    words = f"nvme_core.multipath={paths} systemd.hostname={machine['name']}"
    yield from ("-append", f"{_KERNEL_COMMAND} {words}")
    # In files, because all users can read the arguments of a process.
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
    # Every mode has a host bridge for each node of the mode with the most nodes, as in a
    # real server. A mode changes the node of a bridge, but never the PCI address of a drive.
    step = _BUSES // (len(parts) + 1)
    for place, part in enumerate(parts, start=1):
        node = node_in_mode(machine, mode, part)
        yield "-device"
        yield f"pxb-pcie,id=bridge{part},bus=pcie.0,bus_nr={step * place},numa_node={node}"
    for index, drive in enumerate(machine["drives"]):
        bus = "pcie.0" if drive["node"] is None else f"bridge{drive['node']}"
        name, image = qemu_drive_name(index), _quoted(folder / drive_image_path(drive["serial"]))
        speed, (raw, file) = drive["read_bytes_per_second"], image_node_names(index)
        yield from ("-device", f"pcie-root-port,id=port{index},bus={bus},chassis={index + 1}")
        yield "-drive"
        nodes = f"node-name={raw},file.node-name={file}"
        yield f"file={image},if=none,id={name},format=raw,{nodes},throttling.bps-read={speed}"
        yield from ("-device", f"nvme,drive={name},serial={drive['serial']},bus=port{index}")


def _quoted(path: Path) -> str:
    """Return a path with its commas doubled, for QEMU's comma-separated options."""
    return str(path).replace(",", ",,")

"""Writes the topologies of the simulated machines: hwloc XML, from the table below.

hwloc makes the structure from its own synthetic descriptions (`man lstopo`, --input); this program
adds the processor's name, kinds of cores, drives, GPUs and distances. Run it from the repository,
``python templates/machines/topologies/make_topologies.py``. The topology of a real machine comes
from ``lstopo --of xml FILE`` on that machine.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

FOLDER = Path(__file__).resolve().parent
# PCI link of a drive with four lanes, in GB/s after encoding: PCIe 4.0 and 5.0.
PCIE4_X4, PCIE5_X4 = 7.876923, 15.753846
GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """What the topology of a machine is made of.

    Attributes:
        synthetic: hwloc's description of packages, nodes, caches and cores.
        model: the processor's own name.
        distances: entries of the SLIT for another node of the package, of another package, and for
            a node without cores from the node with its cores.
        drives: number of drives of each node.
        link: PCI link of a drive in GB/s.
        gpu: name and GiB of a GPU at node 0.
        integrated_gpu: whether the GPU is a part of the processor, so that it has no PCI device.
        kinds: kinds of cores: name (only Intel has names), processing units, highest MHz.
        extra: numbers and kinds of the nodes without cores.
        pairs: two nodes and their entry of the SLIT, for pairs with an entry of their own.
        architecture: as the kernel names it.
    """

    synthetic: str
    model: str
    distances: tuple[int, int, int] = (12, 32, 17)
    drives: tuple[int, ...] = ()
    link: float = PCIE4_X4
    gpu: tuple[str, int] | None = None
    integrated_gpu: bool = False
    kinds: tuple[tuple[str, str, int], ...] = ()
    extra: tuple[tuple[int, str], ...] = ()
    pairs: tuple[tuple[int, int, int], ...] = ()
    architecture: str = "x86_64"


def milan(nodes: int, drives: tuple[int, ...]) -> Machine:
    """Return the server of document 000 with `nodes` nodes in a package."""
    size = 128 // nodes * GIB
    structure = {
        1: f"pack:2 [numa(memory={size})] l3:4(size=33554432)",
        2: f"pack:2 group:2 [numa(memory={size})] l3:2(size=33554432)",
        4: f"pack:2 l3:4(size=33554432) [numa(memory={size})]",
    }[nodes]
    cores = "l2:6(size=524288) l1:1(size=32768) core:1 pu:2"
    return Machine(f"{structure} {cores}", "AMD EPYC 7413 24-Core Processor", drives=drives * 2)


def turin(nodes: int) -> Machine:
    """Return the server of document 001 with `nodes` nodes in a package; 0: one in the machine."""
    size = 768 // max(1, nodes) * (1 if nodes else 2) * GIB
    node = f"[numa(memory={size})]"
    structure = {
        0: f"{node} pack:2 l3:8(size=33554432)",
        1: f"pack:2 {node} l3:8(size=33554432)",
        2: f"pack:2 group:2 {node} l3:4(size=33554432)",
        4: f"pack:2 group:4 {node} l3:2(size=33554432)",
    }[nodes]
    cores = "l2:8(size=1048576) l1:1(size=49152) core:1 pu:2"
    return Machine(f"{structure} {cores}", "AMD EPYC 9575F 64-Core Processor")


MACHINES = {
    "epyc_7413_nps1": milan(1, (15,)),
    "epyc_7413_nps2": milan(2, (7, 8)),
    "epyc_7413_nps4": milan(4, (3, 4, 4, 4)),
    **{f"epyc_9575f_nps{nodes}": turin(nodes) for nodes in (0, 1, 2, 4)},
    "epyc_7a53": Machine(
        f"pack:1 group:4 [numa(memory={128 * GIB})] l3:2(size=33554432)"
        " l2:8(size=524288) l1:1(size=32768) core:1 pu:2",
        "AMD EPYC 7A53 64-Core Processor",
    ),
    "opteron_6272": Machine(
        f"pack:4 l3:2(size=6291456) [numa(memory={8 * GIB})] l2:4(size=2097152) core:2 pu:1",
        "AMD Opteron(TM) Processor 6272",
        distances=(16, 22, 22),
    ),
    "xeon_e5_2660_v4": Machine(
        f"pack:2 l3:2(size=18350080) [numa(memory={16 * GIB})]"
        " l2:7(size=262144) l1:1(size=32768) core:1 pu:1",
        "Intel(R) Xeon(R) CPU E5-2660 v4 @ 2.00GHz",
        distances=(21, 31, 31),
    ),
    "xeon_e5_4620": Machine(
        f"pack:4 [numa(memory={132 * GIB})] l3:1(size=16777216)"
        " l2:8(size=262144) l1:1(size=32768) core:1 pu:1",
        "Intel(R) Xeon(R) CPU E5-4620 0 @ 2.20GHz",
        distances=(21, 21, 21),
    ),
    "xeon_max_9480_snc4": Machine(
        f"pack:2 l3:1(size=117964800) group:4 [numa(memory={128 * GIB})] [numa(memory={16 * GIB})]"
        " l2:14(size=2097152) l1:1(size=49152) core:1 pu:1",
        "Intel(R) Xeon(R) CPU Max 9480",
        distances=(12, 21, 13),
        extra=tuple((number, "HBM") for number in range(1, 16, 2)),
    ),
    "epyc_9554_cxl": Machine(
        f"[numa(memory={256 * GIB})] pack:2 [numa(memory={384 * GIB})] l3:8(size=33554432)"
        " l2:8(size=1048576) l1:1(size=32768) core:1 pu:1",
        "AMD EPYC 9554 64-Core Processor",
        extra=((2, "CXL-DRAM"),),
        pairs=((0, 2, 50), (1, 2, 60)),
    ),
    "sixteen_nodes": Machine(
        f"pack:4 group:4 [numa(memory={64 * GIB})] l3:2(size=33554432)"
        " l2:4(size=524288) l1:1(size=32768) core:1 pu:1",
        "AMD EPYC 7763 64-Core Processor",
        drives=(1,) * 16,
    ),
    "desktop": Machine(
        f"pack:1 [numa(memory={64 * GIB})] l3:1(size=37748736)"
        " l2:24(size=2097152) l1:1(size=49152) core:1 pu:1",
        "13th Gen Intel(R) Core(TM) i9-13900K",
        drives=(1,),
        gpu=("NVIDIA GeForce RTX 4070", 12),
        kinds=(("IntelAtom", "8-23", 4300), ("IntelCore", "0-7", 5800)),
    ),
    "apple_m1_pro": Machine(
        f"pack:1 [numa(memory={32 * GIB})] l3:1(size=25165824)"
        " l2:10(size=3145728) l1:1(size=131072) core:1 pu:1",
        "Apple M1 Pro",
        gpu=("Apple M1 Pro", 32),
        integrated_gpu=True,
        kinds=(("", "0-1", 2064), ("", "2-9", 3228)),
        architecture="aarch64",
    ),
    "xeon_8358": Machine(
        f"pack:2 [numa(memory={256 * GIB})] l3:1(size=50331648)"
        " l2:32(size=1310720) l1:1(size=49152) core:1 pu:1",
        "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz",
        distances=(20, 20, 20),
        drives=(2, 2),
    ),
}


def make_topology(machine: Machine) -> etree._Element:
    """Return hwloc's XML of a machine."""
    command = ["lstopo-no-graphics", "--input", machine.synthetic, "--of", "xml", "-"]
    answer = subprocess.run(command, capture_output=True, check=True)
    root = etree.fromstring(answer.stdout)
    top = root.find("object")
    for info in top.findall("info"):  # they name the program and its version
        top.remove(info)
    system = {"OSName": "Linux", "Architecture": machine.architecture}
    for place, (name, value) in enumerate(system.items()):
        top.insert(place, etree.Element("info", name=name, value=value))
    for package in root.iter("object"):
        if package.get("type") == "Package":
            package.insert(0, etree.Element("info", name="CPUModel", value=machine.model))
    nodes = {int(o.get("os_index")): o for o in root.iter("object") if o.get("type") == "NUMANode"}
    for number, kind in machine.extra:
        nodes[number].set("subtype", kind)
    add_devices(machine, nodes)
    add_distances(machine, root, nodes)
    for name, cpus, megahertz in machine.kinds:
        kind = etree.SubElement(root, "cpukind", cpuset=cpu_mask(cpus))
        if name:
            etree.SubElement(kind, "info", name="CoreType", value=name)
        etree.SubElement(kind, "info", name="FrequencyMaxMHz", value=str(megahertz))
    return root


def add_devices(machine: Machine, nodes: dict[int, etree._Element]) -> None:
    """Add drives and the GPU below the object that has their node."""
    numbers = iter(range(100000, 200000))
    drive = 0
    for node, count in enumerate(machine.drives):
        bus = 1 + 16 * node
        bridge = add_object(
            nodes[node].getparent(),
            "Bridge",
            numbers,
            bridge_type="0-1",
            depth="0",
            bridge_pci=f"0000:[{bus:02x}-{bus + count - 1:02x}]",
        )
        for slot in range(count):
            infos = {
                "Size": str(2000398934016 // 1024),
                "SectorSize": "512",
                "Model": "Simulated NVMe drive",
                "Revision": "1.0",
                "SerialNumber": f"SIMULATED{drive:02}",
            }
            add_device(
                bridge,
                numbers,
                f"0000:{bus + slot:02x}:00.0",
                "0108",
                machine.link,
                "0",
                f"nvme{drive}n1",
                "Disk",
                infos,
            )
            drive += 1
    if machine.gpu:
        name, size = machine.gpu
        infos = {
            "OpenCLDeviceType": "GPU",
            "GPUVendor": "Simulated",
            "GPUModel": name,
            "OpenCLPlatformName": "Simulated OpenCL",
            "OpenCLPlatformDeviceIndex": "0",
            "OpenCLComputeUnits": "16" if machine.integrated_gpu else "46",
            "OpenCLGlobalMemorySize": str(size * 2**20),
        }
        device = ("5", "opencl0d0", "OpenCL", infos)
        if machine.integrated_gpu:
            add_os_device(nodes[0].getparent(), numbers, *device)
        else:
            bridge = add_object(
                nodes[0].getparent(),
                "Bridge",
                numbers,
                bridge_type="0-1",
                depth="0",
                bridge_pci="0000:[f1-f1]",
            )
            add_device(bridge, numbers, "0000:f1:00.0", "0300", 4 * PCIE4_X4, *device)


def add_device(bridge, numbers, address, kind, link, *device):
    """Add a PCI device with an operating system's device; `device` is for `add_os_device`."""
    pci = add_object(
        bridge,
        "PCIDev",
        numbers,
        pci_busid=address,
        pci_type=f"{kind} [0000:0000] [0000:0000] 00",
        pci_link_speed=str(link),
    )
    add_os_device(pci, numbers, *device)


def add_os_device(parent, numbers, osdev_type, name, subtype, infos):
    """Add an operating system's device."""
    device = add_object(parent, "OSDev", numbers, name=name, subtype=subtype, osdev_type=osdev_type)
    for key, value in infos.items():
        etree.SubElement(device, "info", name=key, value=value)


def add_object(parent, kind, numbers, **values):
    """Add an object of hwloc's tree and return it."""
    return etree.SubElement(parent, "object", type=kind, gp_index=str(next(numbers)), **values)


def add_distances(machine: Machine, root: etree._Element, nodes: dict[int, etree._Element]) -> None:
    """Add the SLIT of all nodes."""
    if len(nodes) < 2:
        return
    extra = {number for number, _ in machine.extra}
    near, far, without_cores = machine.distances
    own = {frozenset(nodes): value for *nodes, value in machine.pairs}

    def package(node: int) -> str:
        above = nodes[node].iterancestors("object")
        return next((o.get("os_index") for o in above if o.get("type") == "Package"), "none")

    def entry(a: int, b: int) -> int:
        if a == b:
            return 10
        if nodes[a].getparent() is nodes[b].getparent():  # the same cores, another kind of memory
            return without_cores
        step = far if package(a) != package(b) else near
        usual = step + (without_cores - 10 if {a, b} & extra else 0)
        return own.get(frozenset((a, b)), usual)

    numbers = sorted(nodes)
    values = " ".join(str(entry(a, b)) for a in numbers for b in numbers) + " "
    listed = " ".join(map(str, numbers)) + " "
    distances = etree.Element(
        "distances2",
        type="NUMANode",
        nbobjs=str(len(numbers)),
        kind="5",
        name="NUMALatency",
        indexing="os",
    )
    etree.SubElement(distances, "indexes", length=str(len(listed))).text = listed
    etree.SubElement(distances, "u64values", length=str(len(values))).text = values
    root.append(distances)


def cpu_mask(cpus: str) -> str:
    """Return hwloc's mask of a range of processing units such as 8-23."""
    first, last = map(int, cpus.split("-"))
    return f"0x{sum(1 << cpu for cpu in range(first, last + 1)):08x}"


if __name__ == "__main__":
    for machine_name, machine in MACHINES.items():
        document = etree.ElementTree(make_topology(machine))
        etree.indent(document)
        document.write(
            str(FOLDER / f"{machine_name}.xml"),
            encoding="UTF-8",
            xml_declaration=True,
            doctype='<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
        )

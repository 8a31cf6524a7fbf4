"""The lines to type that start a program in a place."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from chaosity.advice.machine_map import MachineMap
from chaosity.advice.requests import Place
from chaosity.components.component_documents import (
    drive_component_name,
    drive_device_path,
)
from chaosity.cpusets import format_cpu_list
from chaosity.place.page_shares import CANONICAL, FIRST_TOUCH, UNIFORM_WORKERS, uniform_shares


def start_commands(machine: MachineMap, place: Place) -> dict[str, str]:
    """Return name of a program -> the line to type; PROGRAM stands for the user's program.

    The result is empty on other systems than Linux, which lack these programs. ``taskset`` sets no
    policy for pages, so it is only there if first touch puts the pages where they must be. The line
    of Slurm takes the whole host, since Slurm ignores masks of processing units otherwise. The line
    of fio only reads. The line of ``chaosity place`` also checks where the pages are.
    """
    if machine.topology.os_family != "linux":
        return {}
    cpus, nodes = format_cpu_list(place.cpus), format_cpu_list(place.shares)
    pages = [] if not place.shares else [f"--interleave={nodes}"]
    if len(place.shares) == 1:
        pages = [f"--membind={nodes}"]
    numactl = ["numactl", f"--physcpubind={cpus}", *pages, "PROGRAM"]
    found = {"numactl": shlex.join(numactl)}
    own = machine.topology.nodes_of_pus(place.cpus)
    found["place"] = shlex.join(_place_words(place, own))
    if not place.shares or (len(own) == 1 and tuple(place.shares) == own):
        found["taskset"] = shlex.join(["taskset", "--cpu-list", cpus, "PROGRAM"])
    whole = ["srun", "--exclusive", f"--nodelist={machine.host}", "--ntasks=1", "--cpu-bind=none"]
    found["slurm"] = shlex.join([*whole, *numactl])
    if place.drives and (paths := _device_paths(machine, place.drives)):
        policy = f"bind:{nodes}" if len(place.shares) == 1 else f"interleave:{nodes}"
        common = ["--rw=read", "--readonly", "--direct=1", "--bs=1M", "--ioengine=io_uring"]
        common += ["--iodepth=32", "--time_based", "--runtime=10", "--group_reporting"]
        common += [f"--cpus_allowed={cpus}", f"--numa_mem_policy={policy}"]
        # In fio, a colon separates file names. Each drive has its own job, as in the measurements.
        jobs = [
            word
            for drive, path in zip(place.drives, paths, strict=True)
            for word in (f"--name={drive}", "--filename=" + path.replace(":", r"\:"))
        ]
        found["fio"] = shlex.join(["fio", *common, *jobs])
    return found


def _place_words(place: Place, workers: Sequence[int]) -> list[str]:
    """Return the words that run PROGRAM in a place with ``chaosity place``."""
    words = ["chaosity", "place", f"--workers={format_cpu_list(workers)}"]
    words.append(f"--cpus={format_cpu_list(place.cpus)}")
    if not place.shares:
        words.append(f"--policy={FIRST_TOUCH}")
    elif place.shares == uniform_shares(workers):
        words.append(f"--policy={UNIFORM_WORKERS}")
    else:
        shares = ",".join(f"{node}:{share:g}" for node, share in place.shares.items())
        words += [f"--policy={CANONICAL}", f"--shares={shares}"]
    return [*words, "--", "PROGRAM"]


def _device_paths(machine: MachineMap, drives: Sequence[str]) -> list[str] | None:
    """Return the path of each drive, or of the file that stands in for the drive.

    The result is None if one of the paths is unknown.
    """
    known = {drive_component_name(each): each for each in machine.topology.drives if each.name}
    paths = []
    for drive in drives:
        facts = machine.drives[drive]
        path = facts.get("path") or facts.get("file")
        if path is None and drive in known:
            path = drive_device_path(known[drive])
        if path is None:
            return None
        paths.append(path)
    return paths

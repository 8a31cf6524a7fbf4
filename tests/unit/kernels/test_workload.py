"""Programs whose pages are placed: what they compute, who touches, and that mistakes are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from every_program import elements_of
from kernel_binary import Start, numa_map, run_valid, waiting

KERNELS = ["triad", "gather", "stencil", "spmv"]
MIB = 1 << 20
# neither whole pages nor even parts; the smallest is some rows
SIZES = [8000, 64 * 1001, 3 * MIB + 12345]


def request(kernel: str, cpus: str, size: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--kernel", kernel, "--cpus", cpus, "--bytes", str(size), *more]


@pytest.mark.parametrize("touch", ["own", "leader"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_and_validates(workload: Path, kernel: str, cpu: str, cpus: str, touch: str):
    options = ["--max-seconds", "0.02", "--sample-seconds", "0.005", "--touch", touch]
    for size, used in zip(SIZES, (cpus, cpu, cpus), strict=True):
        ran = run_valid([workload, *request(kernel, used, size, *options)])
        assert (ran.ready["bytes"], ran.ready["touch"]) == (size, touch)
        counted = sum(sample["elements"] for sample in ran.samples)
        assert counted == ran.done["passes"] * elements_of(ran.ready) > 0


def shape_bytes(ready: dict) -> int:
    """The size of all arrays together, by the shape that the ready line tells."""
    return {
        "triad": lambda: 3 * ready["array_bytes"],
        "gather": lambda: 8 * ready["table_elements"],
        "stencil": lambda: 2 * 8 * ready["rows"] * ready["columns"],
        "spmv": lambda: 12 * ready["nonzeros"] + 24 * ready["rows"],
    }[ready["kernel"]]()


def policy_of(process, ready: dict) -> str:
    return numa_map(process, ready)[0]


@pytest.mark.parametrize("touch", ["own", "leader"])
def test_the_policy_of_the_process_rules(
    workload: Path, start: Start, cpus: str, node: int, touch: str
):
    options = request("gather", cpus, MIB, "--touch", touch)
    process, ready = waiting(start, ["numactl", f"--interleave={node}", workload, *options])
    assert (policy_of(process, ready), ready["policy"]) == (f"interleave:{node}", "default")
    process, ready = waiting(start, [workload, *options])
    assert policy_of(process, ready) == "default"
    process, ready = waiting(start, [workload, *options, "--memory-nodes", str(node)])
    assert (policy_of(process, ready), ready["policy"]) == (f"bind:{node}", "bind")


def faults(process, thread: dict) -> int:
    """How many pages a thread was the first to touch: its minor faults (proc(5))."""
    stat = Path(f"/proc/{process.pid}/task/{thread['tid']}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[7])


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_mapping_holds_everything_and_who_touches_its_pages_first(
    workload: Path, start: Start, two_cpus: list[int], node: int, kernel: str
):
    cpus, size = ",".join(map(str, two_cpus)), 8 * MIB
    page_bytes = os.sysconf("SC_PAGESIZE")
    for touch, others_share in (("own", 0.5), ("leader", 0)):
        options = request(kernel, cpus, size, "--touch", touch)
        process, ready = waiting(start, [workload, *options])
        assert 0.98 * size < shape_bytes(ready) <= size
        pages = [field for field in numa_map(process, ready) if field.startswith("N")]
        held = sum(int(field.split("=")[1]) for field in pages) * page_bytes
        assert shape_bytes(ready) <= held <= size + 5 * page_bytes
        share = faults(process, ready["threads"][1]) * page_bytes / size
        assert others_share * 0.9 <= share <= others_share + 0.1

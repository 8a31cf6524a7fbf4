"""Pages on a machine with eight nodes: every policy by the kernel's account, the search, settings.

How long a load takes means nothing in an emulated machine. Where its pages are is real, and the
program whose best placement is known takes its time from that.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaosity.hosts.runner_command import HOME_DIRECTORY
from lab_machines import Machine

pytestmark = pytest.mark.lab

PLACE = f"{HOME_DIRECTORY}/chaosity-place"  # seen from root's home, where commands run
REPORT, IMAGINED = "/tmp/report.json", "/tmp/placement_sensitive_program.py"
BALANCING = "/proc/sys/kernel/numa_balancing"
WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"
NODES = range(8)
UNEVEN = {0: 0.3, 1: 0.2, 2: 0.05, 3: 0.05, 4: 0.1, 5: 0.15, 6: 0.05, 7: 0.1}
ON_WORKERS = {0: 0.5, 1: 0.5}
EVERYWHERE = dict.fromkeys(NODES, 1 / 8)
# From equal shares the time falls until a fifth of the others' pages has come to node 0, whose
# bandwidth is three times the others', and rises from there (tests/unit/place/test_dwp_search.py).
BANDWIDTHS, LATENCIES, BEST = "3" + ",1" * 7, "0.05" + ",0.2" * 7, 0.2
# Passes of 35 to 45 ms, beside which what emulation adds is little.
SCALE = "0.15"


class Placed:
    """A machine on which programs are placed."""

    def __init__(self, machine: Machine) -> None:
        self.says, self.ssh = machine.says, machine.ssh

    def run(self, policy: str, *arguments: str, program: tuple[str, ...]) -> dict[str, Any]:
        """Place a program; its report, with its last line of output as `said`."""
        words = [PLACE, "--policy", policy, "--workers", "0-1", "--report", REPORT, *arguments]
        answer = self.ssh(shlex.join([*words, "--", *program]))
        assert answer.returncode == 0, (answer.returncode, answer.stderr)
        found = json.loads(self.says("cat", REPORT))
        return {**found, "said": answer.stdout.splitlines()[-1] if answer.stdout else None}

    def settings(self) -> str:
        return self.says(f"cat {BALANCING}; grep . {WEIGHTS}/*")

    def set_balancing(self, value: int) -> None:
        self.says(f"echo {value} > {BALANCING}")


@pytest.fixture(scope="module")
def host(server: Machine) -> Iterator[Placed]:
    """The server, with the program whose best placement is known, and its settings as found."""
    text = (Path(__file__).parents[1] / "support/placement_sensitive_program.py").read_bytes()
    server.says(f"echo {base64.b64encode(text).decode()} | base64 -d > {IMAGINED}")
    found = Placed(server)
    before = int(found.says("cat", BALANCING))
    found.set_balancing(1)  # so that policies have something to change
    yield found
    found.set_balancing(before)


def imagined(seconds: float) -> tuple[str, ...]:
    return ("python3", IMAGINED, BANDWIDTHS, LATENCIES, str(seconds), "16", SCALE)


def python(code: str) -> tuple[str, ...]:
    return ("python3", "-c", code)


def shares(of: dict[int, float]) -> tuple[str, str]:
    return "--shares", ",".join(f"{node}:{share}" for node, share in of.items())


def as_wanted(found: dict[str, Any], wanted: dict[int, float]) -> None:
    """The kernel's account is within 2 % of all pages, of every node."""
    assert found["placed"] is True
    assert found["largest_departure"] <= 0.02
    for node in NODES:
        assert abs(found["seen"].get(str(node), 0.0) - wanted.get(node, 0.0)) <= 0.02, node


@pytest.mark.parametrize(
    ("policy", "arguments", "wanted", "method"),
    [
        ("uniform_workers", (), ON_WORKERS, "interleave"),
        ("uniform_all", (), EVERYWHERE, "interleave"),
        ("uniform_all", ("--method", "move_pages"), EVERYWHERE, "move_pages"),
        ("canonical", shares(UNEVEN), UNEVEN, "weighted_interleave"),
        (
            "canonical",
            (*shares(UNEVEN), "--method", "weighted_interleave"),
            UNEVEN,
            "weighted_interleave",
        ),
        ("canonical", (*shares(UNEVEN), "--method", "move_pages"), UNEVEN, "move_pages"),
        ("canonical_contended", shares({0: 0.9, 7: 0.1}), {0: 0.9, 7: 0.1}, "weighted_interleave"),
    ],
)
def test_pages_are_where_they_should_be(host, policy, arguments, wanted, method) -> None:
    before = host.settings()
    found = host.run(policy, *arguments, program=imagined(1))
    as_wanted(found, wanted)
    assert found["method"] == method
    own = json.loads(found["said"])["shares"]  # what the program itself was told, at its end
    for node in NODES:
        assert abs(own.get(str(node), 0.0) - wanted.get(node, 0.0)) <= 0.02
    assert found["settings"][BALANCING.lstrip("/")] == {"was": "1", "is": "0"}
    assert host.settings() == before


@pytest.mark.parametrize(("policy", "during"), [("first_touch", "0"), ("autonuma", "1")])
def test_what_the_kernel_decides_begins_on_the_workers(host, policy, during) -> None:
    before = host.settings()
    found = host.run(policy, program=imagined(1))
    assert (found["wanted"], found["placed"]) == (None, None)
    assert set(found["seen"]) <= {"0", "1"}
    balancing = found["settings"].get(BALANCING.lstrip("/"), {"is": "1"})
    assert balancing["is"] == during
    assert host.settings() == before


# Ends when its pages are where they should be, or after so long: an emulated machine that others
# keep busy may need minutes for a look.
GROWS = """
import collections, re, time
def shares():
    pages = collections.Counter()
    for line in open("/proc/self/numa_maps"):
        of_nodes = {{int(node): int(n) for node, n in re.findall(" N([0-9]+)=([0-9]+)", line)}}
        if "anon=" in line and sum(of_nodes.values()) >= 256:
            pages.update(of_nodes)
    return {{node: n / pages.total() for node, n in pages.items()}}
kept = []
for _ in range(6):
    kept.append(bytearray(b"x" * (8 << 20)))
    time.sleep(0.5)
limit = time.monotonic() + 300
wanted = {wanted}
while time.monotonic() < limit:
    seen = shares()
    if all(abs(seen.get(node, 0) - share) < 0.015 for node, share in wanted.items()):
        break
    time.sleep(1)
"""
BIG = """
import mmap, time
memory = mmap.mmap(-1, {size} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {flags})
{advice}
for offset in range(0, len(memory), 4096): memory[offset] = 1
time.sleep(8)
"""


def test_pages_that_are_touched_later_follow(host) -> None:
    code = GROWS.format(wanted=UNEVEN)
    found = host.run("canonical", *shares(UNEVEN), "--method", "move_pages", program=python(code))
    as_wanted(found, UNEVEN)
    assert sum(found["bytes_by_node"].values()) >= 48 << 20


def test_transparent_huge_pages_are_counted_and_moved_whole(host) -> None:
    code = BIG.format(size=256, flags=0, advice="memory.madvise(mmap.MADV_HUGEPAGE)")
    arguments = (*shares(UNEVEN), "--method", "move_pages")
    as_wanted(host.run("canonical", *arguments, program=python(code)), UNEVEN)


def test_pages_of_the_huge_page_pool_are_counted_and_moved(host) -> None:
    pool = "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
    host.says(f"for pool in {pool}; do echo 12 > $pool; done")
    try:
        code = BIG.format(size=64, flags="0x40000", advice="")  # 32 pages, MAP_HUGETLB
        arguments = (*shares({0: 0.25, 3: 0.375, 6: 0.375}), "--method", "move_pages")
        found = host.run("canonical", *arguments, program=python(code))
        as_wanted(found, {0: 0.25, 3: 0.375, 6: 0.375})
    finally:
        host.says(f"for pool in {pool}; do echo 0 > $pool; done")


@pytest.mark.parametrize(
    ("policy", "was", "during"), [("autonuma", 0, 1), ("uniform_all", 1, 0), ("canonical", 1, 0)]
)
def test_settings_come_back_after_kill_9(host, policy, was, during) -> None:
    host.set_balancing(was)
    before = host.settings()
    given = shlex.join(shares(UNEVEN)) if policy == "canonical" else ""
    place = f"{PLACE} --policy {policy} --workers 0 {given} -- sleep 600"
    until = f"for i in $(seq 300); do [ $(cat {BALANCING}) = {{}} ] && break; sleep 0.1; done"
    said = host.says(
        f"{place} </dev/null >/dev/null 2>&1 & pid=$!; {until.format(during)}; sleep 1;"
        f"cat {BALANCING}; kill -9 $pid; {until.format(was)}; sleep 1;"
        "grep -lx sleep /proc/[0-9]*/comm || true"
    )
    assert said.split() == [str(during)]  # it was changed, and the program is gone too
    assert host.settings() == before
    host.set_balancing(1)


@pytest.mark.parametrize("method", ["weighted_interleave", "move_pages"])
def test_the_search_finds_the_best_placement_that_is_known(host, method) -> None:
    before = host.settings()
    found = host.run("bwap_uniform", "--workers", "0", "--method", method, program=imagined(200))
    print([(step["dwp"], round(step["rate"], 2)) for step in found["steps"]])
    assert (found["search"]["settled"], found["search"]["reason"]) == (True, None)
    assert abs(found["dwp"] - BEST) <= 0.1 + 1e-9
    near = 1 / 8 + found["dwp"] * 7 / 8
    as_wanted(found, {0: near} | dict.fromkeys(range(1, 8), (1 - near) / 7))
    assert host.settings() == before

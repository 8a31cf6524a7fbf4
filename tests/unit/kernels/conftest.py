"""Fixtures of the kernel tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from every_program import Program
from kernel_binary import Start, build


def program(name: str) -> Any:
    """A fixture that is the path of a program as `make` builds it for this machine."""

    @pytest.fixture(scope="session")
    def path() -> Path:
        return build(name)

    return path


bandwidth = program("chaosity-bandwidth")
latency = program("chaosity-latency")
traffic = program("chaosity-traffic")
workload = program("chaosity-workload")
paths = program("chaosity-paths")
summing = program("chaosity-sum")
tasks = program("chaosity-tasks")
opencl = program("chaosity-opencl")
copying = program("chaosity-copies")


@pytest.fixture(scope="session")
def usable_cpus() -> list[int]:
    """The CPUs that these tests may run on."""
    return sorted(os.sched_getaffinity(0))


@pytest.fixture
def cpu(usable_cpus: list[int]) -> str:
    """One CPU, as the option takes it."""
    return str(usable_cpus[0])


@pytest.fixture
def cpus(usable_cpus: list[int]) -> str:
    """Two CPUs, or the only one, as the option takes them."""
    return ",".join(map(str, usable_cpus[:2]))


@pytest.fixture
def two_cpus(usable_cpus: list[int]) -> list[int]:
    """Two CPUs that these tests may run on."""
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    return usable_cpus[:2]


@pytest.fixture
def options(request: pytest.FixtureRequest, program: Program, usable_cpus: list[int]) -> list[str]:
    """What a program of a test's parameter needs to run at all."""
    if "{1}" in program.options:
        request.getfixturevalue("two_cpus")
    node = request.getfixturevalue("node") if "{node}" in program.options else None
    return program.options.format(*usable_cpus, node=node).split()


@pytest.fixture
def node() -> int:
    """A node that has memory, on a kernel that knows nodes."""
    nodes = sorted(
        int(path.name[4:]) for path in Path("/sys/devices/system/node").glob("node[0-9]*")
    )
    if not nodes:
        pytest.skip("this kernel has no NUMA nodes")
    return nodes[0]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command with pipes and ends it with the test if it has not ended by itself."""
    started: list[subprocess.Popen] = []

    def popen(command: list[str]) -> subprocess.Popen:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield popen
    for process in started:
        with process:  # closes its pipes and waits for its end
            process.kill()

"""Fixtures of the kernel tests."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_binary
import pytest
from every_program import Program


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all programs as `make` builds them for this machine."""
    return kernel_binary.build_all(tmp_path_factory.mktemp("kernels"))


def program(name: str) -> Any:
    """A fixture that is the path of one of them."""

    @pytest.fixture(scope="session")
    def path(programs: Path) -> Path:
        return programs / name

    return path


bandwidth = program("chaosity-bandwidth")
latency = program("chaosity-latency")
core_to_core = program("chaosity-core-to-core")
traffic = program("chaosity-traffic")
workload = program("chaosity-workload")
paths = program("chaosity-paths")
summing = program("chaosity-sum")
tasks = program("chaosity-tasks")
opencl = program("chaosity-opencl")
copying = program("chaosity-copies")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> kernel_binary.Built:
    """Builds a program with EXTRA flags, once, and says where it lies."""

    @functools.cache
    def folder_of(flags: str) -> Path:
        return tmp_path_factory.mktemp("extra")

    @functools.cache
    def program_with(program: str, flags: str) -> Path:
        return kernel_binary.build(folder_of(flags), program, f"EXTRA={flags}")

    return program_with


@pytest.fixture(scope="session")
def memory_checked(built: kernel_binary.Built) -> kernel_binary.Checked:
    """Built with the sanitizers of addresses and undefined behaviour."""
    flags = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
    return lambda program: [str(built(program, flags))]


@pytest.fixture(scope="session")
def threads_checked(built: kernel_binary.Built) -> kernel_binary.Checked:
    """Built with the thread sanitizer, where that can run."""
    # without random addresses: GCC 12's sanitizer cannot place its shadow memory with the wide
    # randomisation of newer kernels
    setarch = shutil.which("setarch")
    prefix = [setarch, "-R"] if setarch else []

    def checked(program: str) -> list[str]:
        command = [*prefix, str(built(program, "-g -fsanitize=thread -fno-sanitize-recover=all"))]
        tried = subprocess.run([*command, "--version"], capture_output=True, text=True)
        if "unexpected memory mapping" in tried.stderr or "Operation not permitted" in tried.stderr:
            pytest.skip("the thread sanitizer cannot run here")
        return command

    return checked


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
def options(request: pytest.FixtureRequest, program: Program, usable_cpus: list[int]) -> list[str]:
    """What a program of a test's parameter needs to run at all."""
    if "{1}" in program.options and len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
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
def start() -> Iterator[kernel_binary.Start]:
    """Starts a command with pipes and ends it with the test if it has not ended by itself."""
    started: list[subprocess.Popen] = []

    def popen(command: list[str]) -> subprocess.Popen:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield popen
    for process in started:
        process.kill()
        process.communicate()

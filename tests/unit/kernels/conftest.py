"""Fixtures of the kernel tests."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kernel_binary
import pytest


@pytest.fixture(scope="session")
def bandwidth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binary as `make` builds it for this machine."""
    folder = kernel_binary.build_all(tmp_path_factory.mktemp("kernels"))
    return folder / "chaosity-bandwidth"


@pytest.fixture(scope="session")
def latency(bandwidth: Path) -> Path:
    """The same of the pointer chase."""
    return bandwidth.with_name("chaosity-latency")


@pytest.fixture(scope="session")
def core_to_core(bandwidth: Path) -> Path:
    """The same of the moves of a line."""
    return bandwidth.with_name("chaosity-core-to-core")


@pytest.fixture(scope="session")
def traffic(bandwidth: Path) -> Path:
    """The same of the traffic beside a chase."""
    return bandwidth.with_name("chaosity-traffic")


@pytest.fixture(scope="session")
def summing(bandwidth: Path) -> Path:
    """The same of the sum over an array."""
    return bandwidth.with_name("chaosity-sum")


@pytest.fixture(scope="session")
def tasks(bandwidth: Path) -> Path:
    """The same of the task-parallel programs."""
    return bandwidth.with_name("chaosity-tasks")


@pytest.fixture(scope="session")
def workload(bandwidth: Path) -> Path:
    """The same of the programs whose pages are placed."""
    return bandwidth.with_name("chaosity-workload")


@pytest.fixture(scope="session")
def paths(bandwidth: Path) -> Path:
    """The same of the reader of all nodes in turn."""
    return bandwidth.with_name("chaosity-paths")


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


@pytest.fixture(params=[1, 2])
def cpus(request: pytest.FixtureRequest, usable_cpus: list[int]) -> str:
    """One CPU, then two, as the option takes them."""
    if request.param > len(usable_cpus):
        pytest.skip("this machine gives the tests one CPU only")
    return ",".join(map(str, usable_cpus[: request.param]))


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

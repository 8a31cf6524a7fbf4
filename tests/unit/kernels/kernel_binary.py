"""Builds and runs the kernels; the tests here all use the real binaries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compiler_cache import path_with_cache

SOURCES = Path(__file__).resolve().parents[3] / "roles" / "kernels" / "files"

ARRAYS = {"read": 1, "fill": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
KERNELS = [*ARRAYS, *(f"{name}_nt" for name in ARRAYS if name != "read")]

DRIVER_FLAGS = [
    *("-O2", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", '-DVERSION="0"', '-DCOMPILER="gcc"'),
    *("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
]
Start = Callable[[list[str]], subprocess.Popen]  # what the fixture `start` is
Built = Callable[[str, str], Path]  # and `built`: a program, and the flags to build it with
Checked = Callable[[str], list[str]]  # a program to the begin of a command that runs it


def build(folder: Path, program: str, *variables: str) -> Path:
    """Builds one program into a folder, with make variables such as EXTRA=-g."""
    build_all(folder, *variables, str(folder / program))
    return folder / program


def build_all(folder: Path, *variables: str) -> Path:
    """Builds every program into a folder, which is returned; unchanged objects are kept."""
    path = path_with_cache(folder / "compilers", os.environ["PATH"])
    make("make", "-s", "-j2", "-C", SOURCES, f"BUILD={folder}", *variables, path=path)
    return folder


def build_driver(folder: Path, driver: Path, *sources: str) -> Path:
    """A test's own program, linked with some of the kernels' sources, under the sanitizers."""
    program = folder / driver.stem
    objects = []
    for source in [driver, *(SOURCES / source for source in sources)]:
        compiler = ["g++", "-std=gnu++17"] if source.suffix == ".cpp" else ["gcc", "-std=gnu11"]
        objects.append(folder / f"{source.name}.o")
        make(*compiler, *DRIVER_FLAGS, "-c", "-o", objects[-1], source)
    linked = ["g++", "-ltbb"] if driver.suffix == ".cpp" else ["gcc"]
    make(linked[0], *DRIVER_FLAGS, "-o", program, *objects, *linked[1:])
    return program


def make(*command: str | Path, path: str = os.environ["PATH"]) -> None:
    """Runs a compiler, or make, which has to succeed without a warning."""
    environment = {**os.environ, "PATH": path}
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert made.returncode == 0, made.stderr


@dataclass(frozen=True)
class Run:
    """One finished run: exit code, what it said on stderr, its events."""

    code: int
    stderr: str
    events: list[dict]

    @property
    def ready(self) -> dict:
        (event,) = [event for event in self.events if event["event"] == "ready"]
        return event

    @property
    def samples(self) -> list[dict]:
        return [event for event in self.events if event["event"] == "sample"]

    @property
    def done(self) -> dict:
        assert self.events[-1]["event"] == "done"
        return self.events[-1]


def arguments(kernel: str, cpus: str, array_bytes: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--kernel", kernel, "--cpus", cpus, "--array-bytes", str(array_bytes), *more]


def run(command: list[str], **options: object) -> Run:
    """Runs a command to its end and reads its JSON lines."""
    options = {
        "capture_output": True,
        "text": True,
        "timeout": 120,
        "stdin": subprocess.DEVNULL,
    } | options
    ended = subprocess.run(command, **options)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return Run(ended.returncode, ended.stderr, events)


def refusal(command: list[str], **options: object) -> str:
    """The one sentence on stderr of a run that must refuse with exit code 2 and print nothing."""
    refused = run(command, **options)
    assert refused.code == 2, refused
    assert refused.events == []
    (sentence,) = refused.stderr.splitlines()
    assert re.match(r"chaosity-[a-z-]+: ", sentence)
    return sentence


def instruction_sets(binary: Path) -> list[str]:
    """The sets of this CPU for which the program has loops, the widest first."""
    return refusal([binary, "--isa", "?"]).split("; it has ")[1].split(", ")


def waiting(start: Start, command: list[str]) -> tuple[subprocess.Popen, dict]:
    """A process that waits at the barrier, and its ready line."""
    process = start([*command, "--barrier"])
    return process, next_event(process)


def next_event(process: subprocess.Popen) -> dict:
    return json.loads(process.stdout.readline())


def last_events(process: subprocess.Popen) -> list[dict]:
    """What the process still prints until it ends, which it must do within a second."""
    began = time.monotonic()
    rest, _ = process.communicate(timeout=10)
    assert time.monotonic() - began < 1
    return [json.loads(line) for line in rest.splitlines()]


def catches(process: subprocess.Popen, number: int) -> bool:
    """Whether the process has come to handle this signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1 == 1


def sleeps(process: subprocess.Popen) -> bool:
    """Whether the process waits for something: its state in proc(5) is then S."""
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def processor_ticks(process: subprocess.Popen, ready: dict) -> int:
    """Time that the threads have run for, in ticks of the kernel (100 a second)."""
    tasks = [f"/proc/{process.pid}/task/{thread['tid']}/stat" for thread in ready["threads"]]
    fields = [Path(task).read_text().rsplit(")", 1)[1].split() for task in tasks]
    return sum(int(field[11]) + int(field[12]) for field in fields)


def numa_map(process: subprocess.Popen, ready: dict) -> list[str]:
    """The fields of the memory's mapping in numa_maps, after the address."""
    for line in Path(f"/proc/{process.pid}/numa_maps").read_text().splitlines():
        address, *fields = line.split()
        if address == ready["mapping"]:
            return fields
    raise AssertionError(f"no mapping at {ready['mapping']}")

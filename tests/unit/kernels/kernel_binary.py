"""Builds and runs the kernels; the tests here all use the real binaries."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from compiler_cache import ROOT

SOURCES = ROOT / "roles/kernels/files"
BUILT = ROOT / "build/kernels_of_tests"
PROVISIONED = ROOT / "build/kernels"
MEMORY_CHECKED = "EXTRA=-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
THREADS_CHECKED = "EXTRA=-O1 -fsanitize=thread -fno-sanitize-recover=all"
CHOSEN_DEFECT = Path(__file__).with_name("chosen_defect.h")
# One build has all that tests need beyond the programs themselves: defects to choose from, a drive
# that is silent after a second, every node, and addresses as in the file.
FOR_TESTS = f"EXTRA=-include {CHOSEN_DEFECT} -DSILENT_SECONDS=1 -DWITHOUT_BINDING -no-pie -fno-pie"

ARRAYS = {"read": 1, "fill": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
# A kernel need not have a variant with non-temporal stores (_nt).
KERNELS = re.findall(r'{"(\w+)",', (SOURCES / "streams/stream_table.c").read_text())

DRIVER_FLAGS = [
    *("-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", '-DVERSION="0"', '-DCOMPILER="gcc"'),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
]
# Keys of the last line with the number or size of errors in the result.
ERRORS = ("max_relative_error", "wrong", "wrong_words", "wrong_elements")
Start = Callable[[list[str]], subprocess.Popen]  # what the fixture `start` is


@functools.cache
def digest_of_sources() -> str:
    """A digest of all from which programs are built, and of the compilers."""
    digest = hashlib.sha256()
    for path in (CHOSEN_DEFECT, *sorted(SOURCES.rglob("*"))):
        if path.is_file() and "build" not in path.relative_to(ROOT).parts:
            digest.update(path.read_bytes())
    for compiler in ("gcc", "g++"):
        digest.update(subprocess.check_output([compiler, "--version"]))
    return digest.hexdigest()


@contextlib.contextmanager
def own_folder(name: str) -> Iterator[Path]:
    """The folder of what is built so, for both workers of pytest-xdist and for later runs."""
    folder = BUILT / hashlib.sha256(name.encode()).hexdigest()[:16]
    BUILT.mkdir(parents=True, exist_ok=True)
    built_from = folder / "sources.sha256"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built_from.exists() or built_from.read_text() != digest_of_sources():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            built_from.write_text(digest_of_sources())
        yield folder


@functools.cache
def provisioned(program: str) -> Path | None:
    """The program that measures on this machine, brought up to date; None if nobody provisioned."""
    path = (PROVISIONED / program).resolve()
    if not path.exists():
        return None
    with (PROVISIONED / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # As in roles/kernels. The builds with variables look for warnings.
        words = ("make", "-s", "-j2", "-C", SOURCES, f"BUILD={path.parent}", "EXTRA=-Wno-error")
        make(*words, str(path))
    return path


def build(program: str, *variables: str) -> Path:
    """Builds a program with make variables such as EXTRA=-g, unless it is there already."""
    if not variables and (path := provisioned(program)):
        return path
    with own_folder(" ".join(variables)) as folder:
        if not (folder / program).exists():
            target = str(folder / program)
            make("make", "-s", "-j2", "-C", SOURCES, f"BUILD={folder}", *variables, target)
    return folder / program


def build_driver(driver: str, *sources: str) -> Path:
    """A test's own program, linked with some of the kernels' sources, under the sanitizers."""
    path = Path(__file__).with_name(driver)
    with own_folder(f"{DRIVER_FLAGS} {path.read_text()}") as folder:
        program = folder / path.stem
        if program.exists():
            return program
        objects = []
        for source in [path, *(SOURCES / source for source in sources)]:
            compiler = ["g++", "-std=gnu++17"] if source.suffix == ".cpp" else ["gcc", "-std=gnu11"]
            objects.append(folder / f"{source.name}.o")
            make(*compiler, *DRIVER_FLAGS, "-c", "-o", objects[-1], source)
        linked = ["g++", "-ltbb"] if path.suffix == ".cpp" else ["gcc"]
        make(linked[0], *DRIVER_FLAGS, "-o", program, *objects, *linked[1:])
    return program


def make(*command: str | Path, **environment: str) -> None:
    """Runs a compiler, or make, which has to succeed without a warning."""
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | environment
    )
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


def run_valid(command: list[str], **options: object) -> Run:
    """A run that must end well, with no error in its result and nothing on stderr."""
    ran = run(command, **options)
    assert (ran.code, ran.stderr, ran.done["valid"]) == (0, "", True), command
    assert not any(ran.done[key] for key in ERRORS if key in ran.done), ran.done
    return ran


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


def functions(binary: Path) -> dict[str, str]:
    """The disassembly of each function."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", binary], capture_output=True, text=True, check=True
    ).stdout
    parts = re.split(r"^[0-9a-f]+ <([^>]+)>:$", listing, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def waiting(start: Start, command: list[str]) -> tuple[subprocess.Popen, dict]:
    """A process that waits at the barrier, and its ready line."""
    process = start([*command, "--barrier"])
    return process, next_event(process)


def next_event(process: subprocess.Popen) -> dict:
    return json.loads(process.stdout.readline())


def last_events(process: subprocess.Popen) -> list[dict]:
    """What the process still prints until it ends, which it must do within a second."""
    began = time.monotonic()
    killer = Timer(10, process.kill)
    killer.start()
    # `communicate` would lose the lines that `readline` has in its buffer.
    process.stdin.close()
    rest = process.stdout.read()
    process.wait()
    killer.cancel()
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

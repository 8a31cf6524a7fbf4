"""Run a parser on one input, and watch its time, its memory and the files that it writes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from chaosity.errors import UserError, printable_text

# Processor time for one input. The slowest good input takes 0.3 s.
MOST_SECONDS = 20.0
# Address space beyond that at the start of an input; a good input takes some 10 MB.
MOST_BYTES = 3 * 2**30
LONGEST_ERROR = 20_000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod"}
CHANGING |= {"os.chown", "os.truncate", "os.utime"}


class BrokenPropertyError(AssertionError):
    """A parser hung, wrote outside its folder, or raised an error that is not one sentence."""


class HangError(BaseException):
    """An input took too much processor time; no parser catches this."""


@dataclass(frozen=True)
class Parser:
    """A parser of foreign input.

    Attributes:
        name: name in the list.
        reads: what it reads, and from whom.
        inputs: makes the good, changed and generated inputs, which takes seconds for some parsers.
        parse: the call with an input and an empty folder, which it may use for files.
        allowed: errors that callers turn into one sentence or into a failed record.
        examples: number of inputs of the short test; slow parsers get fewer.
    """

    name: str
    reads: str
    inputs: Callable[[], st.SearchStrategy[Any]]
    parse: Callable[[Any, Path], object]
    allowed: tuple[type[Exception], ...] = (UserError,)
    examples: int = 60

    @cached_property
    def strategy(self) -> st.SearchStrategy[Any]:
        """The inputs."""
        return self.inputs()


@dataclass
class _Watch:
    """The folder in which files may be written now, and what was written elsewhere."""

    folder: str | None = None
    elsewhere: list[str] = field(default_factory=list)


_WATCH = _Watch()


def _note_writes(event: str, arguments: tuple[Any, ...]) -> None:
    """Note files that Python code writes outside the folder (an audit hook, see PEP 578)."""
    if _WATCH.folder is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if not (flags & WRITING if isinstance(flags, int) else set("wax+") & set(mode or "")):
            return
        paths = [path]
    elif event in CHANGING:
        # The first path of a symbolic link is only a text.
        paths = [arguments[1]] if event == "os.symlink" else list(arguments[:2])
    else:
        return
    for path in paths:
        relative_to_handle = any(type(each) is int and each >= 0 for each in arguments[1:])
        if not isinstance(path, str | bytes | os.PathLike) or relative_to_handle:
            continue  # shutil.rmtree removes files by the handle of their folder
        text = os.fsdecode(path)
        real = os.path.join(os.path.realpath(os.path.dirname(text) or "."), os.path.basename(text))  # noqa: PTH118, PTH120, PTH119
        if real != "/dev/null" and not f"{real}/".startswith(f"{_WATCH.folder}/"):
            _WATCH.elsewhere.append(f"{event} {real}")


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise HangError


@contextmanager
def limits() -> Iterator[Path]:
    """Set the limits for the inputs of one process, and yield an empty folder in memory."""
    if not getattr(sys, "_chaosity_fuzz_hook", False):
        sys.addaudithook(_note_writes)
        sys._chaosity_fuzz_hook = True  # type: ignore[attr-defined] # a hook cannot be removed
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    former = signal.signal(signal.SIGPROF, _hang)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with tempfile.TemporaryDirectory(prefix="chaosity-fuzz-", dir=memory) as name:
        folder = Path(name).resolve()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            yield folder
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            signal.signal(signal.SIGPROF, former)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Let this process and its children put temporary files into a folder."""
    former, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = former
        del os.environ["TMPDIR"]
        if variable is not None:
            os.environ["TMPDIR"] = variable


def run_watched(parser: Parser, value: object, folder: Path) -> bool:
    """Run a parser on an input; return whether it accepted the input.

    Raises:
        BrokenPropertyError: the parser hung, wrote outside its folder, left temporary files, or
            raised an error that is not one sentence.
        Exception: any error that the parser does not allow.
    """
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (folder / "tmp").mkdir()
    (folder / "own").mkdir()
    _WATCH.folder, _WATCH.elsewhere = str(folder), []
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    accepted = True
    try:
        with _temporary_files_in(folder / "tmp"):
            parser.parse(value, folder / "own")
    except parser.allowed as error:
        accepted = False
        check_is_one_sentence(error)
    except HangError:
        raise BrokenPropertyError(f"{parser.name} took more than {MOST_SECONDS:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _WATCH.folder = None
    if _WATCH.elsewhere:
        raise BrokenPropertyError(f"{parser.name} wrote outside: {_WATCH.elsewhere[0]}")
    if left := sorted(path.name for path in (folder / "tmp").iterdir()):
        raise BrokenPropertyError(f"{parser.name} left {left[0]}")
    if others := {path.name for path in folder.iterdir()} - {"tmp", "own"}:
        raise BrokenPropertyError(f"{parser.name} wrote {min(others)}")
    return accepted


def check_is_one_sentence(error: Exception) -> None:
    """Check that an error is short, and has no character that moves or colours a terminal."""
    text = str(error)
    if not text.strip() or len(text) > LONGEST_ERROR:
        raise BrokenPropertyError(f"the error has {len(text)} characters: {text[:200]!r}")
    if isinstance(error, UserError) and printable_text(text).split("\n") != [text]:
        raise BrokenPropertyError(f"the error is not one printable line: {text[:300]!r}")

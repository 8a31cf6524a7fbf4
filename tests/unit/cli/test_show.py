"""`chaosity show` prints the main matrices, in a real terminal of any width and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from table_rows import whole_map

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"
CHAOSITY = str(Path(sys.executable).with_name("chaosity"))
COLOUR = "\x1b[3"


@pytest.fixture(scope="module")
def epyc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_map(EPYC, tmp_path_factory.mktemp("epyc") / "r")


def in_terminal(folder: Path, *options: str, columns: int, **variables: str) -> str:
    """What the command prints to a terminal with so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    environment = {**kept, "TERM": "xterm", **variables}
    command = [CHAOSITY, "show", str(folder), *options]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # the program has closed the terminal
            pass
    os.close(ours)
    assert process.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def table_of(text: str, title: str) -> list[list[str]]:
    """Words of the head and the rows of a table."""
    lines = text.split(title)[1].split("\n\n")[0].splitlines()[1:]
    return [line.split() for line in lines]


@pytest.mark.parametrize("columns", [60, 200])
def test_matrices_fit_into_the_terminal_in_colours_unless_it_wants_none(
    epyc: Path, columns: int
) -> None:
    has_colours = columns == 60
    variables = {} if has_colours else {"NO_COLOR": "1"}
    shown_text = in_terminal(epyc, "--intervals", columns=columns, **variables)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown_text)
    head, *found = table_of(text, "Memory bandwidth in GB/s")
    lines = text.split("Memory bandwidth")[1].splitlines()[1:10]
    assert all(len(line.rstrip()) <= columns for line in lines) and "…" not in text
    shown = len(head) - 2
    assert shown == min(8, (columns - 9) // 21)
    assert found[0].count("to") == shown
    cut = f"{8 - shown} further column{'s' if shown < 7 else ''}: use a wider terminal, or less -S."
    assert (cut in text) == (shown < 8)
    # The best is green, the value of 80 % yellow, that of 50 % red.
    colours = {f"\x1b[{code}m{value}" for code, value in ((32, "40.0"), (33, "32.0"), (31, 192))}
    assert {each in shown_text for each in colours} == {has_colours}
    assert (COLOUR in shown_text) == has_colours

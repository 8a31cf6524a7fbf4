"""Transcripts: commands as a user types them, each with what it prints.

A line that begins with ``$ `` is a command. The lines below it are its exit status, unless it is 0,
and what it prints. Lines before the first command are comments; ``# results: NAME...`` names the
prepared results, see prepared_results.py. There is no shell: a command can begin with settings
of the environment and be followed by ``2>&1``, ``| COMMAND`` and ``> FILE``. HERE stands for the
folder and PROJECT for the repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from click.testing import CliRunner
from prepared_results import (
    copy_prepared,
    fail,
    inflict,
    leave_out_sets,
    pretend_all_measured,
    pretend_nights,
)
from readable_text import read

import chaosity.cli
from chaosity.documents.shipped_documents import ROOT
from quick_files import quick_files

BIN = Path(sys.executable).parent
# Commands of transcripts alone.
OWN: Mapping[str, Callable[[Sequence[str]], str]] = {
    "fail": fail,
    "inflict": inflict,
    "leave-out-sets": leave_out_sets,
    "pretend-measured": pretend_all_measured,
    "pretend-nights": pretend_nights,
    "read": read,
}
ENVIRONMENT = {"COLUMNS": "120"}


def run_transcript(text: str, folder: Path) -> str:
    """Run the commands of a transcript in a folder and return the transcript anew."""
    lines: list[str] = []
    (folder / "data").symlink_to(ROOT / "tests/data")
    for line in text.splitlines():
        if line.startswith("# results: "):
            for name in line.removeprefix("# results: ").split():
                copy_prepared(name, folder)
        if line.startswith("#") and not any(each.startswith("$ ") for each in lines):
            lines.append(line)
        elif line.startswith("$ "):
            status, output = run_line(line.removeprefix("$ "), folder)
            lines += ["", line] + ([f"[{status}]"] if status else [])
            lines += normal(output, folder).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def run_line(line: str, folder: Path) -> tuple[int, str]:
    """Run commands, each piped into the next one; return the exit status and what a user sees."""
    line, _, file = line.partition(" > ")
    parts = line.split(" | ")
    status, given, seen = 0, "", ""
    for number, part in enumerate(parts, start=1):
        words = [word.replace("PROJECT", str(ROOT)) for word in shlex.split(part)]
        words = [word.replace("HERE", str(folder)) for word in words]
        environment = dict(ENVIRONMENT)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        to_terminal = (number == len(parts) and not file) or words[-1] == "2>&1"
        words = [word for word in words if word != "2>&1"]
        ended, given, shown = run_command(words, given, environment, folder, to_terminal)
        status = status or ended
        seen += shown if number == len(parts) or not to_terminal else ""
    if file:
        (folder / file).write_text(given)
    return status, seen


def run_command(
    words: Sequence[str],
    given: str,
    environment: Mapping[str, str],
    folder: Path,
    to_terminal: bool,
) -> tuple[int, str, str]:
    """Run one command: in this process if it is one of ours and can be run there.

    Returns:
        exit status, standard output, and what the terminal shows: only errors if the output goes
        elsewhere.
    """
    if words[0] == "chaosity" or words[0] in OWN:
        with contextlib.chdir(folder), mock.patch.dict(os.environ, environment):
            status, stdout, stderr, both = run_here(words)
        return status, stdout, both if to_terminal else stderr
    done = subprocess.run(
        words,
        cwd=folder,
        input=given,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if to_terminal else subprocess.PIPE,
        env={**os.environ, **environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stdout if to_terminal else done.stderr


def run_here(words: Sequence[str]) -> tuple[int, str, str, str]:
    """Run a command in this process, as its program does; return its status and output."""
    status = 0
    with (
        CliRunner().isolation() as streams,
        mock.patch.object(sys, "argv", list(words)),
        # Else click takes `python -m pytest` for the name of the program.
        mock.patch.object(sys.modules["__main__"], "__package__", None),
        quick_files(),
    ):
        try:
            if words[0] in OWN:
                print(OWN[words[0]](words[1:]), end="")
            else:
                chaosity.cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        except (LookupError, OSError, ValueError) as error:
            status = 1
            print(f"{words[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr, both = (stream.getvalue().decode() for stream in streams)
    return status, stdout, stderr, both


def normal(text: str, folder: Path) -> str:
    """Return an output without what differs between runs and machines, and colours as numbers."""
    text = text.replace(str(folder), "HERE").replace(str(ROOT), "PROJECT")
    text = re.sub(r"(timestamp_seconds\S* )\S+", r"\1TIME", text)
    # Dates but those of pretended nights, digits beyond the fourth, digests.
    text = re.sub(r"20(?!30)\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?", "TIME", text)
    text = re.sub(r"\b\d+\.\d{3,}(e[+-]?\d+)?\b", lambda number: f"{float(number[0]):.4g}", text)
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", text)
    return re.sub("\x1b\\[([0-9;]*)m", r"{\1}", text)

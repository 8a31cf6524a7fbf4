"""Finds the commands in the project's documents, and reads how each of them is tested.

Each line of a fenced block is a command if the block has no language or the language sh. A text
in backquotes is a command if it names one of `PROGRAMS` and something more, or starts a playbook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".yaml")
FILES = ROOT / "tests/data/command_files"
PROGRAMS = {
    *("ansible-playbook", "chaosity", "chaosity-monitor", "chaosity-place", "chaosity-run", "git"),
    *("hwloc-calc", "hwloc-info", "lstopo", "make", "pytest", "python3", "sha256sum", "snakemake"),
    *("sudo", "taskpolicy"),
}
# These are commands without anything more.
ALONE = {"make", "snakemake"}
HERE, SIMULATED, DRY_RUN, ELSEWHERE, NOT_RUN = (
    "here",
    "simulated",
    "dry run",
    "elsewhere",
    "not run",
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"""('[^']*'|"[^"]*")|(?:^|\s+)#.*""")


@dataclass(frozen=True)
class DocumentedCommand:
    """A command of the documents, and how it is tested.

    Attributes:
        command: as it is documented, without comments and line ends.
        how: `here` (it runs on this machine), `simulated` (it runs on simulated hosts or on their
            results), `dry run`, `elsewhere` (other tests run it) or `not run`.
        replace: text in the command -> what replaces it in the test.
        plus: text after the command, for example the option that makes it a dry run.
        before: shell commands that prepare it.
        prints: regular expression that its output matches.
        writes: file that it writes; may have wildcards.
        fast: `make test` runs it; all others run in `make test-all` only.
        tests: other tests that run it, each as file::function.
        reason: why it is not run.
    """

    command: str
    how: str
    replace: dict[str, str] = field(default_factory=dict)
    plus: str = ""
    before: str = ""
    prints: str = ""
    writes: str = ""
    fast: bool = False
    tests: tuple[str, ...] = ()
    reason: str = ""

    @property
    def shell_script(self) -> str:
        """What a shell runs; ends with the status of the first failure."""
        text = self.command
        for old, new in self.replace.items():
            if old not in text:
                raise ValueError(f"{self.command}: there is no {old!r} to replace")
            text = text.replace(old, new)
        return f"set -e\n{self.before}\n{text} {self.plus}\n"


def documents() -> list[Path]:
    """Every Markdown file of the project but the changelog, which is about the past."""
    found = [*ROOT.glob("*.md")]
    for folder in ("config", "docs", "inventories", "machines", "profiles", "roles", "tests"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands in a Markdown document, each in one line and without its comment."""
    for language, block in _FENCED.findall(text):
        if language in ("", "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            commands = (_one_line(_COMMENT.sub(r"\1", line)) for line in lines)
            yield from filter(None, commands)
    for quoted in map(_one_line, _QUOTED.findall(_FENCED.sub("", text))):
        if _is_command(quoted.split()):
            yield quoted


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_command(words: list[str]) -> bool:
    if words[0] == "." or words[0].endswith(".yml"):
        return len(words) > 1
    programs = PROGRAMS & {word.rpartition("/")[2] for word in words}
    return bool(programs) and (len(words) > 1 or words[0] in ALONE)


def documented_commands() -> set[str]:
    """Return every command of the documents."""
    return {command for path in documents() for command in commands_in(path.read_text())}


def listed_commands() -> list[DocumentedCommand]:
    """Return the entries of documented_commands.yaml."""
    entries = yaml.safe_load(LIST.read_text())["commands"]
    return [
        DocumentedCommand(command, **{**entry, "tests": tuple(entry.get("tests", ()))})
        for command, entry in entries.items()
    ]


def prepared_files() -> dict[str, str]:
    """Return the files that the commands read: content by name."""
    return {path.name: path.read_text() for path in FILES.iterdir()}

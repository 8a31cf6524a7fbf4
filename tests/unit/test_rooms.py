"""The rooms of the house use only those that docs/explanation/architecture.md allows."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "workflow" / "chaosity"
ROW = re.compile(r"\| ((?:`\w+`(?:, )?)+) \| .+ \| ?(.*) ?\|")
FOR_ALL = {
    "documents",
    "errors",
    "units",
    "text_templates",
    "place_names",
    "cpusets",
    "records",
}
ON_HOSTS = {"runner", "place", "records", "errors", "cpusets"}


def table() -> list[tuple[list[str], str]]:
    """Each row's rooms, and what it says that they may use."""
    rows = map(ROW.fullmatch, (ROOT / "docs/explanation/architecture.md").read_text().splitlines())
    found = [(re.findall(r"\w+", row[1]), row[2]) for row in rows if row]
    return [
        (rooms, text)
        for rooms, text in found
        if (CODE / rooms[0]).exists() or (CODE / f"{rooms[0]}.py").exists()
    ]


ROWS = table()
ROOMS = [room for rooms, _ in ROWS for room in rooms]


def allowed(room: str) -> set[str]:
    """Rooms, and modules of rooms, that this one may use."""
    at = next(number for number, (rooms, _) in enumerate(ROWS) if room in rooms)
    own, text = ROWS[at]
    named = set(re.findall(r"`([\w.]+)`", text))
    if text.startswith("all below"):
        named = {below for rooms, _ in ROWS[at + 1 :] for below in rooms} - named
    return named | set(own) | (FOR_ALL & ON_HOSTS if room in ON_HOSTS else FOR_ALL)


def imports(room: str) -> Iterator[tuple[Path, str]]:
    """Each file of a room, and what it imports: full names of modules and of what they hold."""
    folder = CODE / room
    for path in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((path, f"{node.module}.{alias.name}") for alias in node.names)


def test_every_room_stands_in_the_table():
    # A folder that only holds compiled files is left from an older version.
    found = {path.relative_to(CODE).parts[0].removesuffix(".py") for path in CODE.rglob("*.py")}
    there = {name for name in found if name[0] != "_"}
    assert set(ROOMS) == there
    assert len(ROOMS) == len(there)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_only_what_the_table_lets_it_use(room: str):
    may = allowed(room)
    for path, name in imports(room):
        project, *parts = name.split(".")
        if project != "chaosity" or parts == ["__version__"]:
            continue
        assert parts[0] in may or ".".join(parts[:2]) in may, f"{path} imports {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_lead_down(room: str):
    at = next(number for number, (rooms, _) in enumerate(ROWS) if room in rooms)
    above = {other for rooms, _ in ROWS[:at] for other in rooms}
    used = {name.split(".")[0] for name in allowed(room) - FOR_ALL}
    assert not used & above


@pytest.mark.parametrize("room", sorted(ON_HOSTS))
def test_what_is_copied_to_hosts_needs_the_standard_library_alone(room: str):
    for path, name in imports(room):
        module = name.split(".")[0]
        assert module == "chaosity" or module in sys.stdlib_module_names, f"{path} imports {name}"

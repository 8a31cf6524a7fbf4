r"""Which tests notice a fault? Change one place of the code at a time, and run its tests.

\b
    python bench/mutants.py --rooms health,place --count 30 --seed 1
    python bench/mutants.py --again build/mutants/mutants.csv --tree ../older --table older.csv

Three layers of tests run on each mutant: tests/unit, the transcripts of tests/golden, and all other
tests (`rest`). Of tests/unit, the tests of the mutant's own room come first. Then come the cheapest
tests of other rooms, for at most two minutes. A mutant is killed if a test fails or does not end. A
mutant that no layer kills is listed with its line. The tests run in a copy of the repository below
build/mutants, so the tree itself does not change.

The first run of a layer records with coverage.py which lines each file of tests executes, which
takes twice the time of these tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pandas as pd
from coverage import CoverageData

from mutation_sites import MODULE_LEVEL, Site, chosen, mutate, names_set_at, sites

REPOSITORY = Path(__file__).resolve().parent.parent
CODE = Path("workflow/chaosity")
LAYERS = ("unit", "golden", "rest")
FAST = "not fresh and not lab and not slurm and not thorough"
# The copy uses the environment of the tree, and makes its own machines and build products.
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "mutants", "__pycache__", ".*_cache", "results"
)
# A comment changes only the digest of a file.
NO_CHANGE = "\n# Nothing has changed.\n"
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
# A test may take more time with a mutant than in the record, and pytest some seconds to start.
SPARE_SECONDS, TIMES_RECORDED = 60.0, 4.0
# The longest time for tests of other rooms than the mutant's, since nearly all tests execute some
# lines.
OTHER_ROOMS_SECONDS = 120.0
KILLED = ("killed", "hung")
COLUMNS = ("room", "file", "line", "function", "kind", "old", "new", "nth")
KEY = ["file", "function", "kind", "old", "new", "nth"]


def room_of(file: str) -> str:
    """Return the room of a file, whose path is relative to the package."""
    return file.partition("/")[0].removesuffix(".py")


def tests_of_room(room: str) -> tuple[str, str]:
    """Return the folder and the file that may have the tests of a room."""
    return f"tests/unit/{room}/", f"tests/unit/test_{room}.py"


@dataclass(frozen=True)
class Record:
    """The lines that a layer's tests execute, as data of coverage.py, and the tests' times."""

    data: CoverageData
    seconds: Mapping[str, float]  # file of tests -> processor seconds

    def files_that_execute(self, path: Path, lines: Collection[int]) -> set[str]:
        """Return the files of tests that execute one of these lines of a source file."""
        by_line = self.data.contexts_by_lineno(str(path))
        tests = {test for line in lines for test in by_line.get(line, ())}
        return {test.partition("::")[0] for test in tests} & self.seconds.keys()


class Tree:
    """A copy of a repository in which sources are changed and tests run."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.notes = source / "build/mutants"
        self.root = self.notes / "tree"
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(source, self.root, ignore=NOT_COPIED, symlinks=True)
        for name in (".git", ".venv"):
            (self.root / name).symlink_to(source / name)
        self._records: dict[str, Record] = {}
        self.confirmed: dict[tuple[str, str], bool] = {}
        self.written = 0

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return path below the package -> text, for each source file."""
        code = self.source / CODE
        return {
            str(path.relative_to(code)): path.read_text() for path in sorted(code.rglob("*.py"))
        }

    def write(self, file: str, text: str) -> None:
        """Write a source file with a new time: Python keeps compiled files by time and size."""
        path = self.root / CODE / file
        path.write_text(text)
        self.written += 1
        os.utime(path, (self.written, self.written))

    def pytest(self, *words: str, seconds: float | None = None, **variables: str) -> str | None:
        """Run pytest and return what it prints; None if it does not end in time."""
        folders = [
            str(self.root / "build/kernels"),
            str(self.root / ".venv/bin"),
            os.environ["PATH"],
        ]
        own = {
            "PATH": os.pathsep.join(folders),
            "PYTHONPATH": str(self.root / "workflow"),
        }
        pytest = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
        with subprocess.Popen(
            [*pytest, "-rfE", *words],
            cwd=self.root,
            env={**os.environ, **own, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                return process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return None

    def records(self, layer: str) -> list[Record]:
        """Return the records of a layer; make missing records."""
        paths: dict[str, list[str]]
        match layer:
            case "golden":
                paths = {layer: ["tests/golden"]}
            case "rest":
                paths = {layer: ["tests", "--ignore=tests/golden", "--ignore=tests/unit"]}
            case _:  # a record for each room
                rooms = sorted({room_of(file) for file in self.sources})
                paths = {f"unit_{room}": self.existing_tests_of_room(room) for room in rooms}
        names = [name for name, own in paths.items() if own]
        for name in names:
            if name not in self._records:
                self._records[name] = self._read_or_make_record(name, paths[name])
        return [self._records[name] for name in names]

    def existing_tests_of_room(self, room: str) -> list[str]:
        """Return the folder and the file of a room's tests, if they exist."""
        return [path for path in tests_of_room(room) if (self.root / path).exists()]

    def _read_or_make_record(self, name: str, paths: Sequence[str]) -> Record:
        data, times = self.notes / f"{name}.coverage", self.notes / f"{name}.xml"
        if not times.exists():
            settings = self.notes / "coverage.ini"
            # Programs that a test starts name it as their context.
            settings.write_text(
                f"[run]\nsource = {self.root / CODE}\ndata_file = {data}\nparallel = true\n"
                "context = ${PYTEST_CURRENT_TEST-}\npatch = subprocess\n"
            )
            print(f"recording {name}", flush=True)
            shutil.rmtree(self.root / "build/simulated_machines", ignore_errors=True)
            self.pytest(
                *paths,
                *("--numprocesses", "auto", "-m", FAST, f"--junitxml={times}"),
                *("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="),
                COVERAGE_PROCESS_START=str(settings),
            )
        seconds: defaultdict[str, float] = defaultdict(float)
        for case in ElementTree.parse(times).iter("testcase"):
            file = case.get("classname", "").replace(".", "/") + ".py"
            seconds[file] += float(case.get("time", 0))
        read = CoverageData(str(data))
        read.read()
        if not read.measured_contexts():
            sys.exit(f"{data}: no line was recorded; delete {times} and try again")
        return Record(read, seconds)

    def files_of_tests(self, layer: str, site: Site) -> dict[str, float]:
        """Return file -> seconds of the tests that execute a mutant, in the order to run them."""
        lines = {site.file: {site.line}}
        if site.function == MODULE_LEVEL:
            # A constant counts as executed on each line that reads its name.
            names = names_set_at(self.sources[site.file], site.line)
            word = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
            lines = {
                file: {n for n, line in enumerate(text.splitlines(), 1) if word.search(line)}
                for file, text in self.sources.items()
                if names and word.search(text)
            }
        found = {
            name: record.seconds[name]
            for record in self.records(layer)
            for file, numbers in lines.items()
            for name in record.files_that_execute(self.root / CODE / file, numbers)
        }
        cheapest_first = sorted(found, key=lambda name: found[name])
        if layer != "unit":
            return {name: found[name] for name in cheapest_first}
        own_room = tests_of_room(room_of(site.file))
        taken = [name for name in cheapest_first if name.startswith(own_room)]
        seconds = 0.0
        for name in cheapest_first:
            if name in taken:
                continue
            seconds += found[name]
            if seconds > OTHER_ROOMS_SECONDS:
                break
            taken.append(name)
        return {name: found[name] for name in taken}

    def verdict(self, site: Site, layer: str) -> tuple[str, str]:
        """Run a layer's tests on a mutant; return killed, hung, survived or no test, and a test."""
        files = self.files_of_tests(layer, site)
        if not files:
            return "no test", ""
        limit = SPARE_SECONDS + TIMES_RECORDED * sum(files.values())
        without: list[str] = []
        while True:
            source = self.sources[site.file]
            self.write(site.file, mutate(source, site))
            try:
                said = self.pytest(*files, "-x", "-m", FAST, *without, seconds=limit)
            finally:
                self.write(site.file, source)
            if said is None:
                return "hung", ""
            failed = FAILED.findall(said)
            if not failed:
                return "survived", ""
            if not self.fails_anyway(site.file, failed[0]):
                return "killed", failed[0]
            without.append(f"--deselect={failed[0]}")

    def fails_anyway(self, file: str, test: str) -> bool:
        """Return whether a test also fails if only a comment is new in the file."""
        if (file, test) not in self.confirmed:
            self.write(file, self.sources[file] + NO_CHANGE)
            try:
                said = self.pytest(test)
            finally:
                self.write(file, self.sources[file])
            self.confirmed[file, test] = bool(FAILED.search(said or ""))
        return self.confirmed[file, test]


def summary(rows: pd.DataFrame) -> str:
    """Return killed mutants by room and layer, then the mutants that no layer kills."""
    rows = rows.assign(killed=rows["result"].isin(KILLED))
    mutants = rows.pivot_table("killed", ["room", *KEY, "line"], "layer", aggfunc="max")
    layers = [layer for layer in LAYERS if layer in mutants]
    mutants["any"] = mutants[layers].max(axis=1)
    table = mutants.groupby("room").sum().astype(int)[[*layers, "any"]]
    table.insert(0, "mutants", mutants.groupby("room").size())
    table.loc["all"] = table.sum()
    lines = [table.to_string(), "", "Survivors:"]
    for room, file, function, kind, old, new, _, line in mutants[
        ~mutants["any"].astype(bool)
    ].index:
        change = " ".join(f"{old} -> {new}".split())
        lines.append(f"{room}: {file}:{line} {function} {kind}: {change}")
    return "\n".join(lines)


def chosen_sites(
    files: Mapping[str, str], rooms: Sequence[str], count: int, seed: int
) -> list[Site]:
    """Return the mutants of all rooms in turn: first one of each room, then a second of each."""
    picked: defaultdict[int, list[Site]] = defaultdict(list)
    for room in rooms:
        of_room = {file: text for file, text in files.items() if room_of(file) == room}
        every = chosen(of_room, f"{seed} {room}")
        for number, site in zip(range(count), every, strict=False):
            picked[number].append(site)
    return [site for number in sorted(picked) for site in picked[number]]


def read_table(path: Path) -> pd.DataFrame:
    """Return the rows of a table of results; no rows if the table does not exist yet."""
    if not path.exists():
        return pd.DataFrame(columns=[*COLUMNS, "layer", "result", "test"])
    return pd.read_csv(path, keep_default_na=False, dtype={"old": str, "new": str})


@click.command(help=__doc__)
@click.option("--rooms", help="Rooms, with commas between them. Default: all.")
@click.option("--count", default=30, show_default=True, help="Mutants of a room.")
@click.option("--seed", default=1, show_default=True, help="Chooses the mutants.")
@click.option("--layers", default="unit,golden", show_default=True, help="Also: rest.")
@click.option("--until-killed", is_flag=True, help="Run no layer on a killed mutant.")
@click.option("--again", type=click.Path(path_type=Path), help="Run the mutants of this table.")
@click.option("--table", "path", type=click.Path(path_type=Path), help="CSV that gets the rows.")
@click.option("--tree", type=click.Path(path_type=Path), default=REPOSITORY, help="Repository.")
def main(
    rooms: str | None,
    count: int,
    seed: int,
    layers: str,
    until_killed: bool,
    again: Path | None,
    path: Path | None,
    tree: Path,
) -> None:
    """Run the mutants that are not in the table yet, and print the table."""
    if unknown := {*layers.split(",")} - {*LAYERS}:
        sys.exit(f"unknown layer {unknown.pop()}: use {', '.join(LAYERS)}")
    copy = Tree(tree.resolve())
    path = path or copy.notes / "mutants.csv"
    names = rooms.split(",") if rooms else sorted({room_of(file) for file in copy.sources})
    if again:
        keys = {*read_table(again)[KEY].itertuples(index=False, name=None)}
        every = (site for file, text in copy.sources.items() for site in sites(file, text))
        todo = [site for site in every if site.key in keys]
    else:
        todo = chosen_sites(copy.sources, names, count, seed)
    table = read_table(path)
    done = {*table[[*KEY, "layer"]].itertuples(index=False, name=None)}
    killed = {*table[table["result"].isin(KILLED)][KEY].itertuples(index=False, name=None)}
    for site in todo:
        for layer in layers.split(","):
            if (*site.key, layer) in done or (until_killed and site.key in killed):
                continue
            result, test = copy.verdict(site, layer)
            values: dict[str, Any] = {name: getattr(site, name) for name in COLUMNS[1:]}
            row = {
                "room": room_of(site.file),
                **values,
                "layer": layer,
                "result": result,
                "test": test,
            }
            pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
            print(f"{site.file}:{site.line} {layer}: {result} {test}", flush=True)
            if result in KILLED:
                killed.add(site.key)
    print(summary(read_table(path)))


if __name__ == "__main__":
    main()

r"""Who would notice? Changes one place of the code at a time and runs the tests that enter it.

\b
    python bench/mutants.py --record
    python bench/mutants.py --rooms health,place --count 30 --seed 1 --layers unit,golden

A mutant is killed if a test fails, or does not end; one that survives is listed with its line. All
runs are in copies of the repository below build/mutants, so the tree itself does not change.
"""

from __future__ import annotations

import csv
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import click

from mutation import entered_functions
from mutation.sites import MODULE_LEVEL, Site, chosen, mutate, names_set_at, readers, sites

BENCH = Path(__file__).resolve().parent
CODE = Path("workflow/chaosity")
LAYERS = ("unit", "golden", "commands")
FAST = "not fresh and not lab and not slurm and not thorough"
BLOCK = 10  # mutants of a room that are run and confirmed together
KEPT_MACHINES = "build/simulated_machines"
KEEP_MACHINES = "CHAOSITY_KEEP_SIMULATED_MACHINES"
NO_CHANGE = "\n# A comment changes nothing but the file's digest.\n"
# A test may need more than in the record, and pytest some seconds to start.
SPARE_SECONDS = 20

Row: TypeAlias = dict[str, str]


def room_of(file: str) -> str:
    """Return the room of a file, whose path is relative to the package."""
    return file.partition("/")[0].removesuffix(".py")


def layer_of(test: str, room: str) -> str:
    """Return the layer of a test for the mutants of a room."""
    path = test.partition("::")[0]
    if path.startswith("tests/golden/"):
        return "golden"
    own = path.startswith((f"tests/unit/{room}/", f"tests/unit/test_{room}.py"))
    return "unit" if own else "commands"


# The record of which test enters which function.


@dataclass
class Record:
    """Which tests that pass enter a function, and what they take."""

    functions: dict[str, list[int]] = field(default_factory=dict)
    tests: list[tuple[str, float]] = field(default_factory=list)
    # Functions that run while modules are imported, and those that make simulated machines.
    at_import: list[str] = field(default_factory=list)
    of_machines: list[str] = field(default_factory=list)

    def tests_that_enter(self, functions: Iterable[str]) -> dict[str, float]:
        """Return the tests that enter one of these functions, with their seconds."""
        numbers = {number for name in functions for number in self.functions.get(name, ())}
        return dict(self.tests[number] for number in sorted(numbers))

    def functions_of(self, file: str) -> list[str]:
        """Return the functions of a file that some test enters."""
        return [name for name in self.functions if name.startswith(f"{file}:")]


def read_notes(folder: Path) -> Record:
    """Merge what the processes of a run of pytest have noted."""
    entered: defaultdict[str, set[str]] = defaultdict(set)
    uses: defaultdict[str, set[str]] = defaultdict(set)
    tests: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.pytest"):
        noted = json.loads(path.read_text(encoding="utf-8"))
        tests |= noted["tests"]
        for owner, names in noted["entered"].items():
            entered[owner].update(names)
        for owner, names in noted["uses"].items():
            uses[owner].update(names)
    for path in folder.glob("*.process"):
        # A test's name may contain line feeds, a function's name does not: it has a file.
        owner, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        entered[owner].update(line for line in lines if ".py:" in line)
    record = Record()
    functions: defaultdict[str, list[int]] = defaultdict(list)
    for name, test in tests.items():
        if test["outcome"] == "passed":
            seconds = test.get("processor_seconds", test["seconds"])
            for function in _all_entered(name, entered, uses):
                functions[function].append(len(record.tests))
            record.tests.append((name, round(seconds, 3)))
    record.functions = dict(sorted(functions.items()))
    record.at_import = sorted(_all_entered(entered_functions.DURING_IMPORTS, entered, uses))
    record.of_machines = sorted(_all_entered(entered_functions.MACHINES, entered, uses))
    return record


def _all_entered(
    owner: str, entered: Mapping[str, set[str]], uses: Mapping[str, set[str]]
) -> set[str]:
    """Return what an owner enters, itself and by what it uses."""
    known, waiting = {owner}, [owner]
    while waiting:
        new = uses.get(waiting.pop(), set()) - known
        known |= new
        waiting += new
    return set().union(*(entered.get(one, set()) for one in known))


# Copies of the repository.


def copy_tree(source: Path, target: Path) -> None:
    """Bring a copy of a repository with its environment up to date."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=source, capture_output=True, text=True, check=True).stdout
    files = {name for name in names.split("\0") if name and (source / name).is_file()}
    for folder in ("workflow", "tests", "templates"):
        for path in (target / folder).rglob("*"):
            # A removed module must not be found, not even compiled.
            if path.is_file() and str(path.relative_to(target)) not in files:
                path.unlink()
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name)
    for path in source.glob("build/*"):
        if path.name not in ("mutants", "notes", "site"):
            _copy(path, target / "build" / path.name)
    # Many tests ask git for the files of the repository.
    _copy(source / ".git", target / ".git")
    if not (target / ".venv").exists():
        shutil.copytree(source / ".venv", target / ".venv", symlinks=True, copy_function=os.link)
        _move_environment(target / ".venv", source, target)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(source, target)


def _move_environment(environment: Path, source: Path, target: Path) -> None:
    """Let the programs and packages of an environment name the copy."""
    places = ("bin/*", "pyvenv.cfg", "lib/python*/site-packages/*.pth")
    for path in [one for place in places for one in environment.glob(place)]:
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if bytes(source) in content:
                # The file is the same as that of the other environment: it must not be written.
                new = path.with_name(f"{path.name}.new")
                new.write_bytes(content.replace(bytes(source), bytes(target)))
                shutil.copymode(path, new)
                new.rename(path)


class Tree:
    """A copy of the repository, and a process that runs its tests."""

    def __init__(self, source: Path, number: int) -> None:
        self.root = source / f"build/mutants/tree-{number}"
        copy_tree(source, self.root)
        self.machines = self.root / KEPT_MACHINES
        self.pristine = self.root.with_name(f"machines-{number}")
        self.times = 1_000_000_000
        shutil.rmtree(self.pristine, ignore_errors=True)
        if self.machines.exists():
            shutil.copytree(self.machines, self.pristine)
        kernels = self.root / "build/kernels"
        folders = [str(kernels), str(self.root / ".venv/bin"), os.environ["PATH"]]
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
            os.environ.pop(name, None)
        self.server = subprocess.Popen(
            [
                self.root / ".venv/bin/python",
                "-P",
                BENCH / "mutation/forked_pytest.py",
                self.root.parent,
            ],
            cwd=self.root,
            env={**os.environ, "PATH": os.pathsep.join(folders)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self, file: str, text: str) -> None:
        """Write a source file with a new time: Python keeps compiled files by time and size."""
        path = self.root / CODE / file
        path.write_text(text, encoding="utf-8")
        self.times += 1
        os.utime(path, (self.times, self.times))

    def failed(
        self, tests: Mapping[str, float], *, keep_machines: bool, options: Sequence[str] = ()
    ) -> tuple[list[str], int]:
        """Run the tests; return which failed, and how many ran."""
        seconds = sum(tests.values())
        order = {
            "tests": list(tests),
            "options": options,
            "processor_seconds": SPARE_SECONDS + 4 * seconds,
            "seconds": 10 * SPARE_SECONDS + 20 * seconds,
            "variables": {KEEP_MACHINES: "1"} if keep_machines else {},
        }
        assert self.server.stdin is not None and self.server.stdout is not None
        print(json.dumps(order), file=self.server.stdin, flush=True)
        answer = json.loads(self.server.stdout.readline())
        self._restore_machines(keep_machines)
        return answer["failed"], answer["ran"]

    def _restore_machines(self, kept: bool) -> None:
        made = {path.name for path in self.machines.glob("*")}
        known = {path.name for path in self.pristine.glob("*")}
        if not kept or made - known:
            shutil.rmtree(self.machines, ignore_errors=True)
            if self.pristine.exists():
                shutil.copytree(self.pristine, self.machines)

    def close(self) -> None:
        """End the process."""
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()


# Which tests a mutant meets, and what they say.


class Suite:
    """The files and the record of a repository: which tests could notice a mutation."""

    def __init__(self, root: Path, record: Record) -> None:
        self.record = record
        code = root / CODE
        paths = sorted(path for path in code.rglob("*.py") if "__pycache__" not in path.parts)
        self.files = {str(path.relative_to(code)): path.read_text() for path in paths}
        self.rooms = sorted({room_of(file) for file in self.files})

    def functions_of(self, site: Site) -> set[str]:
        """Return the functions through which a mutation can be noticed."""
        own = f"{site.file}:{site.function}"
        if site.function != MODULE_LEVEL and own in self.record.functions:
            return {own}
        names = names_set_at(self.files[site.file], site.line) or {site.function.split(".")[-1]}
        found = {
            f"{file}:{function}"
            for file, text in self.files.items()
            if any(name in text for name in names)
            for function in readers(text, names)
        }
        return found & self.record.functions.keys() or {*self.record.functions_of(site.file)}

    def tests_of(self, site: Site, layer: str, without: Collection[str]) -> dict[str, float]:
        """Return the tests of a layer that could notice a mutation, the cheapest files first."""
        room = room_of(site.file)
        tests = {
            test: seconds
            for test, seconds in self.record.tests_that_enter(self.functions_of(site)).items()
            if layer_of(test, room) == layer and test not in without
        }
        files = [
            dict(part) for _, part in groupby(tests.items(), lambda one: one[0].partition("::")[0])
        ]
        return {test: each[test] for each in sorted(files, key=_cost) for test in each}

    def keeps_machines(self, site: Site) -> bool:
        """Tell whether a mutation leaves simulated machines as they are."""
        return not self.functions_of(site) & {*self.record.of_machines}


def _cost(tests: Mapping[str, float]) -> float:
    return sum(tests.values())


def within(tests: Mapping[str, float], cap: float) -> dict[str, float]:
    """Return the tests of all that fit into so many seconds; at least one."""
    taken: dict[str, float] = {}
    spent = 0.0
    for test, seconds in tests.items():
        if not taken or spent + seconds <= cap:
            taken[test] = seconds
            spent += seconds
    return taken


@dataclass(frozen=True)
class Result:
    """What the tests of a layer said about a mutant."""

    site: Site
    layer: str
    result: str  # killed, hung, survived or no test
    test: str = ""
    ran: int = 0
    left_out: int = 0

    def row(self) -> dict[str, object]:
        """Return the row of the table of all results."""
        site = asdict(self.site)
        kept = ("file", "function", "line", "kind", "old", "new", "nth")
        own = {name: getattr(self, name) for name in ("layer", "result", "test", "ran", "left_out")}
        return {"room": room_of(self.site.file), **{name: site[name] for name in kept}, **own}


def run_mutant(
    tree: Tree, suite: Suite, site: Site, layer: str, cap: float, without: Collection[str]
) -> Result:
    """Run the tests of a layer on a mutant until one fails."""
    every = suite.tests_of(site, layer, without)
    if not every:
        return Result(site, layer, "no test")
    tests = within(every, cap)
    source = suite.files[site.file]
    tree.write(site.file, mutate(source, site))
    try:
        failed, ran = tree.failed(tests, keep_machines=suite.keeps_machines(site), options=["-x"])
    finally:
        tree.write(site.file, source)
    left_out = len(every) - len(tests)
    if not failed:
        return Result(site, layer, "survived" if ran else "no test", "", ran, left_out)
    outcome = "hung" if failed[0] == "no end" else "killed"
    return Result(site, layer, outcome, failed[0], ran, left_out)


def tests_that_fail_anyway(tree: Tree, suite: Suite, room: str, tests: Collection[str]) -> set[str]:
    """Return the tests that fail too if comments are all that is new in the room."""
    files = [file for file in suite.files if room_of(file) == room]
    for file in files:
        tree.write(file, suite.files[file] + NO_CHANGE)
    try:
        seconds = dict(suite.record.tests)
        given = {test: seconds[test] for test in tests if test in seconds}
        failed, _ = tree.failed(given, keep_machines=True) if given else ([], 0)
    finally:
        for file in files:
            tree.write(file, suite.files[file])
    return {*failed}


@dataclass(frozen=True)
class Block:
    """Mutants of one room that are run and confirmed together."""

    room: str
    sites: Sequence[Site]
    layers: Sequence[str]
    until_killed: bool
    cap: float

    def results(self, tree: Tree, suite: Suite) -> Iterator[Result]:
        """Yield the confirmed results."""
        without: set[str] = set()
        waiting = list(self.sites)
        while waiting:
            found = {site: [*self._of_one(tree, suite, site, without)] for site in waiting}
            killers = {one.test for results in found.values() for one in results if one.test}
            wrong = tests_that_fail_anyway(tree, suite, self.room, killers) - without
            without |= wrong
            waiting = [
                site for site, all_of in found.items() if any(one.test in wrong for one in all_of)
            ]
            for site, all_of in found.items():
                if site not in waiting:
                    yield from all_of

    def _of_one(
        self, tree: Tree, suite: Suite, site: Site, without: Collection[str]
    ) -> Iterator[Result]:
        for layer in self.layers:
            result = run_mutant(tree, suite, site, layer, self.cap, without)
            print(f"{site.file}:{site.line} {layer}: {result.result} {result.test}", flush=True)
            yield result
            if self.until_killed and result.result in ("killed", "hung"):
                return


# The table.


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table of results; none if it is not there yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def key_of(row: Row) -> tuple[str, str, str, str, str, int]:
    """Return the key of the mutation of a row."""
    return row["file"], row["function"], row["kind"], row["old"], row["new"], int(row["nth"])


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each room: killed mutants of each layer; then the survivors."""
    layers = [layer for layer in LAYERS if any(row["layer"] == layer for row in rows)]
    killed = {(key_of(row), row["layer"]) for row in rows if row["result"] in ("killed", "hung")}
    rooms: defaultdict[str, dict[Any, Row]] = defaultdict(dict)
    for row in rows:
        rooms[row["room"]][key_of(row)] = row
    yield f"{'room':14}{'mutants':>9}" + "".join(f"{name:>10}" for name in (*layers, "any"))
    sums: Counter[str] = Counter()
    for room, mutants in sorted(rooms.items()):
        counts = Counter(
            {layer: sum((key, layer) in killed for key in mutants) for layer in layers}
        )
        counts["any"] = sum(any((key, one) in killed for one in layers) for key in mutants)
        counts["mutants"] = len(mutants)
        sums += counts
        yield f"{room:14}{len(mutants):9}" + "".join(
            f"{counts[one]:10}" for one in (*layers, "any")
        )
    yield f"{'all':14}{sums['mutants']:9}" + "".join(f"{sums[one]:10}" for one in (*layers, "any"))
    yield ""
    yield "Survivors:"
    for mutants in rooms.values():
        for key, row in mutants.items():
            if not any((key, layer) in killed for layer in layers):
                change = " ".join(f"{row['old']} -> {row['new']}".split())
                yield f"{row['file']}:{row['line']} {row['function']} {row['kind']}: {change}"


class Table:
    """The file of the results, to which each block is added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()

    def add(self, results: Iterable[Result]) -> None:
        """Append the results of a block."""
        rows = [result.row() for result in results]
        with self.lock:
            new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                if new:
                    writer.writeheader()
                writer.writerows(rows)


def blocks(
    suite: Suite, rooms: Sequence[str], count: int, seed: int, again: Collection[Any] | None
) -> Iterator[tuple[str, list[Site]]]:
    """Yield the mutants of each room in blocks, the first of all rooms first."""
    picked = {}
    for room in rooms:
        files = {file: text for file, text in suite.files.items() if room_of(file) == room}
        if again is None:
            every = chosen(files, f"{seed} {room}")
            picked[room] = [site for site, _ in zip(every, range(count), strict=False)]
        else:
            of_room = (site for file, text in files.items() for site in sites(file, text))
            picked[room] = [site for site in of_room if site.key in again]
    most = max(map(len, picked.values()), default=0)
    for begin in range(0, most, BLOCK):
        for room, found in picked.items():
            if found[begin : begin + BLOCK]:
                yield room, found[begin : begin + BLOCK]


def record_tests(root: Path, tests: Sequence[str], output: Path) -> None:
    """Run the fast tests in a copy and write which functions each enters."""
    copy = root / "build/mutants/tree-1"
    copy_tree(root, copy)
    notes, site = copy / "build/notes", copy / "build/site"
    for folder in (notes, site, copy / KEPT_MACHINES):
        shutil.rmtree(folder, ignore_errors=True)
    notes.mkdir()
    site.mkdir()
    shutil.copy2(entered_functions.__file__, site)
    (site / "sitecustomize.py").write_text(
        "import entered_functions\nentered_functions.install()\n"
    )
    folders = [str(copy / "build/kernels"), str(copy / ".venv/bin"), os.environ["PATH"]]
    variables = {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "PYTHONPATH": str(site),
        entered_functions.FOLDER: str(notes),
    }
    pytest = [
        str(copy / ".venv/bin/pytest"),
        "-q",
        "-p",
        "entered_functions",
        "-p",
        "no:cacheprovider",
    ]
    together = ["--numprocesses", "auto", "--dist", "worksteal", "-m", f"{FAST} and not alone"]
    for options in (together, ["-m", f"{FAST} and alone"]):
        subprocess.run([*pytest, *options, *tests], cwd=copy, env=variables, check=False)
    output.write_text(json.dumps(asdict(read_notes(notes))), encoding="utf-8")
    # Golden files are made from these machines; a mutant meets them too.
    if (copy / KEPT_MACHINES).exists():
        shutil.copytree(copy / KEPT_MACHINES, root / KEPT_MACHINES, dirs_exist_ok=True)


@click.command(help=__doc__)
@click.argument("tests", nargs=-1)
@click.option(
    "--record", "recording", is_flag=True, help="Record which functions TESTS call. Default: all."
)
@click.option("--rooms", help="Rooms of docs/design.md, with commas between them. Default: all.")
@click.option("--count", default=30, show_default=True, help="Mutants of a room.")
@click.option("--seed", default=1, show_default=True, help="Chooses the mutants.")
@click.option("--layers", default=",".join(LAYERS), show_default=True, help="Tests that are run.")
@click.option("--until-killed", is_flag=True, help="Run no layer after that which kills it.")
@click.option(
    "--cap", default=60.0, show_default=True, help="Most seconds that a layer tests one mutant."
)
@click.option("--jobs", default=1, show_default=True, help="Mutants at the same time.")
@click.option("--again", type=click.Path(path_type=Path), help="Run the mutants of this table.")
@click.option(
    "--table", "path", type=click.Path(path_type=Path), help="CSV to which rows are added."
)
@click.option("--tree", type=click.Path(path_type=Path), default=BENCH.parent, help="Repository.")
@click.option("--notes", type=click.Path(path_type=Path), help="Read notes of traced runs.")
def main(
    tests: Sequence[str],
    recording: bool,
    rooms: str | None,
    count: int,
    seed: int,
    layers: str,
    until_killed: bool,
    cap: float,
    jobs: int,
    again: Path | None,
    path: Path | None,
    tree: Path,
    notes: Path | None,
) -> None:
    """Run the mutants that are not in the table yet, and print the table."""
    root = tree.resolve()
    recorded = root / "build/mutants/entered.json"
    recorded.parent.mkdir(parents=True, exist_ok=True)
    if notes:
        recorded.write_text(json.dumps(asdict(read_notes(notes))), encoding="utf-8")
    if recording:
        record_tests(root, tests, recorded)
    if recording or notes:
        return
    if not recorded.exists():
        sys.exit("run this with --record first")
    record = Record(**json.loads(recorded.read_text(encoding="utf-8")))
    suite = Suite(root, record)
    table = Table(path or root / "build/mutants/mutants.csv")
    done = {(key_of(row), row["layer"]) for row in read_rows(table.path)}
    wanted = layers.split(",")
    keys = {key_of(row) for row in read_rows(again)} if again else None
    waiting: queue.SimpleQueue[Block] = queue.SimpleQueue()
    for room, some in blocks(suite, rooms.split(",") if rooms else suite.rooms, count, seed, keys):
        new = [
            site
            for site in some
            if not {(site.key, layer) for layer in wanted[: 1 if until_killed else None]} <= done
        ]
        if new:
            waiting.put(Block(room, new, wanted, until_killed, cap))

    def work(number: int) -> None:
        copy = Tree(root, number)
        while not waiting.empty():
            block = waiting.get_nowait()
            table.add(block.results(copy, suite))
        copy.close()

    with ThreadPoolExecutor(jobs) as pool:
        for working in [pool.submit(work, number) for number in range(1, jobs + 1)]:
            working.result()
    print("\n".join(summary(read_rows(table.path))))


if __name__ == "__main__":
    main()

"""Notes which functions of the product each test enters, for bench/mutants.py.

Every Python process of the run imports this file, since it is imported by a `sitecustomize` that is
first on PYTHONPATH. The modules of chaosity are compiled with a call at the start of each function.
Processes that are not pytest write what they enter into files of their own. What a fixture of a
module or session, or a function with a cache, enters counts for each test that uses it.

Only the standard library is imported, since the runner runs in the Python of the system too.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import marshal
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# The folder for the notes, and the test or fixture that started this process.
FOLDER, STARTED_BY = "CHAOSITY_ENTERED_FUNCTIONS", "CHAOSITY_ENTERED_BY"
NOTE = "_chaosity_note_entered"
DURING_IMPORTS = ""
MACHINES = "machines"  # owner of what makes the simulated machines of tests/machines.py


class _CallAtStart(ast.NodeTransformer):
    """Puts a call with the function's name at the start of each function."""

    def __init__(self, file: str) -> None:
        self.names = [file + ":"]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.names.append(node.name + ".")
        self.generic_visit(node)
        self.names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        name = "".join(self.names) + node.name
        self.names.append(node.name + ".")
        self.generic_visit(node)
        self.names.pop()
        call = ast.Expr(
            ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(name)], []),
        )
        ast.copy_location(call, node.body[0])
        node.body.insert(0 if ast.get_docstring(node, clean=False) is None else 1, call)
        return ast.fix_missing_locations(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast calls


class _NotingLoader(Loader):
    """Loads a module of chaosity whose functions say that they are entered."""

    def __init__(self, spec: ModuleSpec) -> None:
        self.inner: Any = spec.loader
        self.file = spec.name.replace(".", "/").removeprefix("chaosity").lstrip("/")
        self.file += "/__init__.py" if spec.submodule_search_locations is not None else ".py"
        self.file = self.file.lstrip("/")

    def get_code(self, name: str) -> CodeType:
        source = self.inner.get_source(name)
        path = self.inner.get_filename(name)
        kept = Path(os.environ[FOLDER]) / "compiled" / f"{hash_of(path + source)}.{sys.hexversion}"
        try:
            code: CodeType = marshal.loads(kept.read_bytes())
        except (OSError, ValueError, EOFError):
            code = compile(_CallAtStart(self.file).visit(ast.parse(source)), path, "exec")
            kept.parent.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps(code))
            new.rename(kept)
        return code

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def hash_of(text: str) -> str:
    """Return a short name for a text."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:24]


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class _Finder(PathFinder):
    """Finds the modules of chaosity, in folders and in zipped files."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "chaosity":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and hasattr(spec.loader, "get_source"):
            spec.loader = _NotingLoader(spec)
        return spec


class _File:
    """What a process that is not pytest enters; it may be killed at any time."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.number = -1

    def add(self, function: str) -> None:
        if function not in self.known:
            self.known.add(function)
            if self.number == -1:
                name = f"{os.environ[FOLDER]}/{os.getpid()}-{time.monotonic_ns()}.process"
                flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
                self.number = os.open(name, flags, 0o666)
                os.write(self.number, f"{os.environ.get(STARTED_BY, '')}\n".encode())
            os.write(self.number, f"{function}\n".encode())


class _Notes:
    """What this process notes: functions by owner, and which owners use which."""

    def __init__(self) -> None:
        self.entered: defaultdict[str, set[str]] = defaultdict(set)
        self.uses: defaultdict[str, set[str]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}
        self.fixture_seconds: dict[str, float] = {}
        self.owner = DURING_IMPORTS
        self.current: set[str] | _File = _File()
        self.test: AbstractContextManager[None] = nullcontext()
        self.began = 0.0

    def note(self, function: str) -> None:
        self.current.add(function)

    @contextmanager
    def owned(self, owner: str) -> Iterator[None]:
        """Note what is entered meanwhile as that of this owner."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = self.owner, self.current, os.environ.get(STARTED_BY)
        self.owner, self.current = owner, self.entered[owner]
        os.environ[STARTED_BY] = owner
        try:
            yield
        finally:
            self.owner, self.current = before[:2]
            if before[2] is None:
                os.environ.pop(STARTED_BY, None)
            else:
                os.environ[STARTED_BY] = before[2]

    def use(self, owner: str) -> None:
        if owner != self.owner:
            self.uses[self.owner].add(owner)

    def leave_to_file(self) -> None:
        """Write into a file from now on: this process was forked."""
        self.current = _File()
        self.entered = defaultdict(_File)  # type: ignore[arg-type]


notes = _Notes()


def install() -> None:
    """Note the functions that this process enters."""
    setattr(builtins, NOTE, notes.note)
    sys.meta_path.insert(0, _Finder)
    os.register_at_fork(after_in_child=notes.leave_to_file)


def _noted_cache(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `functools.lru_cache` whose hits count as uses of what the miss entered."""

    def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
        if callable(maxsize):
            return lru_cache()(maxsize)

        def decorate(function: Callable[..., Any]) -> Any:
            code = getattr(function, "__code__", None)
            file = code.co_filename.removeprefix(f"{Path.cwd()}/") if code else "/"
            if code is None or not file.startswith(("workflow/", "tests/")):
                return original(maxsize, typed)(function)
            owner = f"cache {file}:{code.co_firstlineno}"

            @functools.wraps(function)
            def miss(*given: Any, **named: Any) -> Any:
                with notes.owned(owner):
                    return function(*given, **named)

            cached = original(maxsize, typed)(miss)

            @functools.wraps(function)
            def called(*given: Any, **named: Any) -> Any:
                notes.use(owner)
                return cached(*given, **named)

            vars(called)["cache_clear"] = cached.cache_clear
            vars(called)["cache_info"] = cached.cache_info
            return called

        return decorate

    return lru_cache


# Hooks of pytest, if this file is its plugin.


def pytest_load_initial_conftests() -> None:
    """Note from here on as pytest, which imports modules first and runs tests then."""
    from _pytest.fixtures import FixtureDef

    notes.current = notes.entered[DURING_IMPORTS]
    functools.lru_cache = _noted_cache(functools.lru_cache)
    functools.cache = lambda function: functools.lru_cache(None)(function)
    execute = FixtureDef.execute

    def noted(fixture: Any, request: Any) -> Any:
        if fixture.scope == "function":
            return execute(fixture, request)
        owner = f"{fixture.baseid}::{fixture.argname}"
        notes.use(owner)
        began, known = processor_seconds(), fixture.cached_result is not None
        with notes.owned(owner):
            try:
                return execute(fixture, request)
            finally:
                if not known:
                    notes.fixture_seconds[owner] = processor_seconds() - began

    setattr(FixtureDef, "execute", noted)  # noqa: B010 - its type is generic


def pytest_collection_finish() -> None:
    """Count what makes a simulated machine for each test that uses one."""
    if machines := sys.modules.get("machines"):
        made_once, make_results = machines._made_once, machines.make_results

        def noted_machine(*given: Any, **named: Any) -> Any:
            notes.use(MACHINES)
            return made_once(*given, **named)

        def noted_results(*given: Any, **named: Any) -> Any:
            with notes.owned(MACHINES):
                return make_results(*given, **named)

        machines._made_once, machines.make_results = noted_machine, noted_results  # type: ignore[attr-defined]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what is entered from here on as that of this test."""
    notes.began = processor_seconds()
    notes.test = notes.owned(nodeid)
    notes.test.__enter__()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Stop noting calls as those of this test: it has ended."""
    notes.test.__exit__(None, None, None)
    if nodeid in notes.tests:
        notes.tests[nodeid]["processor_seconds"] = processor_seconds() - notes.began


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Add the time of a part of a test; a test that is skipped or fails does not pass."""
    test = notes.tests.setdefault(item.nodeid, {"seconds": 0.0, "outcome": "passed"})
    test["seconds"] += call.duration
    if call.excinfo is not None:
        test["outcome"] = "not passed"


def pytest_sessionfinish() -> None:
    """Write the notes of this process."""
    if not notes.tests:
        return
    folder = Path(os.environ[FOLDER])
    said = {
        "tests": notes.tests,
        "fixture_seconds": notes.fixture_seconds,
        "entered": {owner: sorted(names) for owner, names in notes.entered.items()},
        "uses": {owner: sorted(names) for owner, names in notes.uses.items()},
    }
    path = folder / f"{os.getpid()}-{time.monotonic_ns()}.pytest"
    path.write_text(json.dumps(said), encoding="utf-8")

"""Find the places where a source file can be mutated: pure functions for bench/mutants.py."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Pow: "*",
}
# Methods of loggers and warnings, whose texts are for readers only.
LOGGED = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn"}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MODULE_LEVEL = ""


@dataclass(frozen=True)
class Site:
    """One mutation: the bytes from `begin` to `end` of the file are replaced."""

    file: str
    function: str
    line: int
    kind: str
    old: str
    new: str
    begin: int
    end: int
    # How many mutations of the same function, kind and texts come before it.
    nth: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """Return the key of the mutation, which is the same after its lines have moved."""
        return self.file, self.function, self.kind, self.old, self.new, self.nth


class _Finder:
    """Walks a module and collects its sites."""

    def __init__(self, file: str, source: str) -> None:
        self.file = file
        self.bytes = source.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Site] = []

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self.starts[node.lineno - 1] + node.col_offset
        return begin, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr) -> str:
        begin, end = self.span(node)
        return self.bytes[begin:end].decode()

    def add(self, node: ast.expr, function: str, kind: str, new: str) -> None:
        begin, end = self.span(node)
        old = self.bytes[begin:end].decode()
        self.found.append(Site(self.file, function, node.lineno, kind, old, new, begin, end))

    def visit(self, node: ast.AST, names: tuple[str, ...], function: str) -> None:
        """Collect the sites of a node and those in it."""
        for child in _code_below(node):
            if isinstance(child, ast.ClassDef):
                self.visit(child, (*names, child.name), function)
            elif isinstance(child, FUNCTION):
                if child.name not in ("__repr__", "__str__"):
                    own = (*names, child.name)
                    self.visit(child, own, ".".join(own))
            else:
                self.mutate(child, function)
                self.visit(child, names, function)

    def mutate(self, node: ast.AST, function: str) -> None:
        match node:
            case ast.Compare(left, [operator], [right]) if type(operator) in COMPARE:
                text = f"{self.text(left)} {COMPARE[type(operator)]} {self.text(right)}"
                self.add(node, function, "compare", text)
            case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
                if not (_is_text(left) or _is_text(right)):
                    text = f"({self.text(left)} {ARITHMETIC[type(operator)]} {self.text(right)})"
                    self.add(node, function, "arithmetic", text)
            case ast.Constant(bool() as value):
                self.add(node, function, "constant", repr(not value))
            case ast.Constant(int() as value):
                self.add(node, function, "constant", repr(value + 1))
            case ast.Constant(float() as value):
                self.add(node, function, "constant", repr(value * 1.3 or 1.0))
            case ast.BoolOp(operator, values):
                word = " or " if isinstance(operator, ast.And) else " and "
                text = word.join(f"({self.text(value)})" for value in values)
                self.add(node, function, "and/or", f"({text})")
            case ast.UnaryOp(ast.Not(), operand):
                self.add(node, function, "dropped not", f"({self.text(operand)})")
            case ast.If(test) | ast.IfExp(test) if not _is_type_checking(test):
                if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                    self.add(test, function, "negated if", f"(not ({self.text(test)}))")
            case ast.Call(ast.Name("min" | "max" as name) as called):
                self.add(called, function, "min/max", {"min": "max", "max": "min"}[name])
            case ast.Return(value) if value is not None and not _is_none(value):
                self.add(value, function, "return None", "None")


def _code_below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that change what the program does."""
    match node:
        case ast.AnnAssign(target, _, value):
            yield target
            if value is not None:
                yield value
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = (one for one in node.args.kw_defaults if one is not None)
            yield from (*node.decorator_list, *node.args.defaults, *defaults, *node.body)
        case ast.Lambda(args, body):
            yield from (*args.defaults, *(one for one in args.kw_defaults if one is not None))
            yield body
        case ast.If(test, _, orelse) if _is_type_checking(test):
            yield from orelse
        case ast.Call(ast.Attribute(attr=attribute)) if attribute in LOGGED:
            pass
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            pass
        case ast.Assert():
            pass
        # The elements of a type: `X: TypeAlias = tuple[int, Literal[3]]`, `cast("int", x)`.
        case ast.Subscript(ast.Name("Literal" | "Annotated" | "Callable" | "tuple" | "dict")):
            pass
        case _:
            yield from ast.iter_child_nodes(node)


def _is_type_checking(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name == "TYPE_CHECKING"


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Constant(str()):
            return True
        case ast.BinOp(left, _, right):
            return _is_text(left) or _is_text(right)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def sites(file: str, source: str) -> list[Site]:
    """Return all mutations of a file, in the order of its lines."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source), (), MODULE_LEVEL)
    found = []
    before: Counter[object] = Counter()
    for site in sorted(finder.found, key=lambda one: (one.begin, one.end, one.kind)):
        nth, before[site.key] = before[site.key], before[site.key] + 1
        found.append(replace(site, nth=nth))
    return found


def is_different(source: str, site: Site) -> bool:
    """Return whether a mutation gives a different program that can be parsed."""
    try:
        return ast.dump(ast.parse(mutate(source, site))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def mutate(source: str, site: Site) -> str:
    """Return the source with this mutation."""
    given = source.encode()
    return (given[: site.begin] + site.new.encode() + given[site.end :]).decode()


def chosen(files: Mapping[str, str], seed: str) -> Iterator[Site]:
    """Yield mutations of these files in a random order, one for each line."""
    every = [site for file in sorted(files) for site in sites(file, files[file])]
    random.Random(seed).shuffle(every)
    lines: set[tuple[str, int]] = set()
    for site in every:
        if (site.file, site.line) not in lines and is_different(files[site.file], site):
            lines.add((site.file, site.line))
            yield site


def names_set_at(source: str, line: int) -> set[str]:
    """Return the names that the statement of a module or class around a line gives a value."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        for statement in node.body:
            assert statement.end_lineno is not None
            if statement.lineno <= line <= statement.end_lineno:
                match statement:
                    case ast.Assign(targets):
                        found |= {one.id for one in targets if isinstance(one, ast.Name)}
                    case ast.AnnAssign(ast.Name(name)):
                        found.add(name)
                    case ast.ClassDef(name):
                        found.add(name)
    return found

"""What bench/mutants.py changes: each mutant parses and differs in one place."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

import pytest

from mutation_sites import chosen, is_different, mutate, names_set_at, sites

CODE = Path(__file__).resolve().parents[2] / "workflow/chaosity"


@pytest.mark.parametrize(
    "source, expected",
    [
        ("x = a < b", [("compare", "x = a <= b")]),
        ("x = a not in b", [("compare", "x = a in b")]),
        ("x = a * b", [("arithmetic", "x = (a / b)")]),
        ('x = "%s" % a + "é" + b', []),
        ("x = 3", [("constant", "x = 4")]),
        ("x = 0.0", [("constant", "x = 1.0")]),
        ("x = True", [("constant", "x = False")]),
        ("x = a and b and c", [("and/or", "x = ((a) or (b) or (c))")]),
        ("x = not a", [("dropped not", "x = (a)")]),
        ("x = 'é' if a else b", [("negated if", "x = 'é' if (not (a)) else b")]),
        ("x = min(a, b)", [("min/max", "x = max(a, b)")]),
        ("def f():\n    return a", [("return None", "def f():\n    return None")]),
        ("def f():\n    return None", []),
        # Nothing of these changes what the program does.
        ('"""Words: 3."""', []),
        ("x: Literal[3]", []),
        ("def f(x: Literal[3]) -> Literal[3]: ...", []),
        ("x: tuple[int, 3] = y", []),
        ("if TYPE_CHECKING:\n    x = 3", []),
        ("class A:\n    def __repr__(self):\n        return 3", []),
        ("logger.warning(3)", []),
        ("raise ValueError(3)", []),
        ('x = f"{a + 3}"', []),
    ],
)
def test_kinds_of_mutations(source: str, expected: list[tuple[str, str]]) -> None:
    assert [(site.kind, mutate(source, site)) for site in sites("a.py", source)] == expected


@pytest.mark.parametrize("file", ["health/change_points.py", "place_names.py"])
def test_each_mutant_is_another_program_in_one_place(file: str) -> None:
    source = (CODE / file).read_text()
    found = sites(file, source)
    assert len({site.key for site in found}) == len(found) > 40
    different = [site for site in found[::9] if is_different(source, site)]
    assert different
    for site in different:
        mutant = mutate(source, site)
        ast.parse(mutant)
        changed = difflib.SequenceMatcher(
            None, source.splitlines(), mutant.splitlines(), autojunk=False
        ).get_opcodes()
        [where] = [begin for kind, begin, *_ in changed if kind != "equal"]
        assert where + 1 == site.line


def test_the_first_mutants_stay_the_first_whatever_their_number() -> None:
    files = {"a.py": "x = 3\ny = 4 < 5\nz = a and b\n"}
    every = [*chosen(files, "1 health")]
    assert {site.line for site in every} == {1, 2, 3} and len(every) == 3
    assert [*chosen(files, "1 health")] == every


def test_a_site_names_its_function_and_a_statement_what_it_sets() -> None:
    source = """
LIMIT = 3
class A:
    SIZE = 4
    def over(self, given=5):
        return given > LIMIT
"""
    assert {(one.old, one.function) for one in sites("a.py", source)} == {
        ("3", ""),
        ("4", ""),
        ("5", "A.over"),
        ("given > LIMIT", "A.over"),
    }
    assert names_set_at(source, 2) == {"LIMIT"} and names_set_at(source, 4) == {"A", "SIZE"}

"""Help, version, plan and topology start without the heavy libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chaosity.cli import COMMANDS
from inventories import SMALL_MACHINES

HEAVY = ("duckdb", "lxml", "numpy", "pandas", "scipy", "statsmodels", "vl_convert")
# Reading a topology parses hwloc's XML.
HEAVY_BUT_XML = tuple(name for name in HEAVY if name != "lxml")
PROGRAM = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {forbidden!r}:
            raise SystemExit(f"imports {{name}}")

sys.meta_path.insert(0, Refuse())
"""
ONE = (
    PROGRAM
    + """
sys.argv = {arguments!r}
from {module} import main
sys.exit(main())
"""
)
EACH = (
    PROGRAM
    + """
from chaosity.cli import chaosity
for line in {arguments!r}[1:]:
    try:
        chaosity.main(line.split(), "chaosity")
    except SystemExit as end:
        if end.code:
            raise
"""
)
SUBCOMMANDS = {
    "export": ("all", "hwloc", "json", "weights"),
    "profile": ("collect", "import", "publish", "query"),
}
MACHINE = SMALL_MACHINES / "fleet.xml"


def run(
    *arguments: str,
    module: str = "chaosity.cli",
    forbidden: tuple[str, ...] = HEAVY,
    program: str = ONE,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that ends if it imports a forbidden library."""
    given = ["chaosity", *arguments]
    program = program.format(forbidden=forbidden, module=module, arguments=given)
    return subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_help_and_version_import_no_heavy_library() -> None:
    """All in one process: a library that none of them imports, none imports."""
    every = [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in COMMANDS),
        *([group, name, "--help"] for group, names in SUBCOMMANDS.items() for name in names),
    ]
    done = run(*map(" ".join, every), program=EACH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().count("usage: chaosity") == len(every) - 1


def test_chaosity_place_imports_no_heavy_library() -> None:
    done = run("place", "--policy", "no_such_policy")
    assert done.returncode == 2
    assert "invalid choice: 'no_such_policy'" in done.stderr


@pytest.mark.parametrize("arguments", [["topology"], ["plan", "--topology"]], ids=" ".join)
def test_topology_and_plan_import_no_heavy_library_but_the_xml_parser(arguments: list[str]) -> None:
    done = run(*arguments, str(MACHINE), forbidden=HEAVY_BUT_XML)
    assert done.returncode == 0, done.stderr
    assert "1node-per-package" in done.stdout


@pytest.mark.parametrize("module", ["runner.__main__", "place.__main__", "transport.measure"])
def test_programs_on_hosts_import_no_heavy_library(module: str) -> None:
    done = run("--help", module=f"chaosity.{module}")
    assert "imports" not in done.stderr

"""What the roles' files promise: every variable typed and shown, every tool packaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
# Name -> folder, of the project's roles and of those that only tests need.
ROLES = {
    path.parent.name: path.parent
    for path in sorted((*ROOT.glob("roles/*/tasks"), *ROOT.glob("tests/*/roles/*/tasks")))
    if not path.parent.is_symlink()
}
FAMILIES = ("Debian", "RedHat")
PLAYBOOKS = [
    *(ROOT / "provision.yml", *ROOT.glob("playbooks/*.yml")),
    *(ROOT / "tests/lab/lab.yml", ROOT / "tests/slurm/slurm.yml"),
]
CONTROLLER = ("localhost", "127.0.0.1", "local")


def read(role: str, path: str) -> Any:
    """A YAML file of a role, or an empty mapping where the role has none."""
    file = ROLES[role] / path
    return yaml.safe_load(file.read_text()) if file.exists() else {}


def options(role: str) -> dict[str, Any]:
    return read(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_typed_and_has_a_default_an_example_and_the_name_of_its_role(
    role: str,
) -> None:
    typed = options(role)
    assert set(read(role, "defaults/main.yml")) == set(typed)
    assert all(name.startswith(f"{role}_") for name in typed)
    assert all(name.startswith(f"__{role}_") for name in read(role, "vars/main.yml"))
    types = {"str": str, "path": str, "bool": bool, "int": int, "list": list, "dict": dict}
    text = (ROLES[role] / "defaults/main.yml").read_text() if typed else ""
    shown = set()
    for line in (line for line in text.splitlines() if "# Ex" in line):
        [(name, value)] = yaml.safe_load(line.removeprefix("# Example: ")).items()
        assert isinstance(value, types[typed[name]["type"]]), line
        shown.add(name)
    assert shown == set(typed)


def test_every_family_has_a_word_on_every_tool_and_a_package_of_what_is_required() -> None:
    variables = read("toolchain", "vars/main.yml")
    assert variables["__toolchain_families"] == list(FAMILIES)
    for family in FAMILIES:
        packages = read("toolchain", f"vars/{family}.yml")["__toolchain_packages"]
        assert set(packages) == set(variables["__toolchain_questions"])
        assert all(packages[tool] for tool in variables["__toolchain_required"]), family


def test_the_role_knows_the_programs_that_the_makefile_builds_and_its_folders() -> None:
    files, variables = ROLES["kernels"] / "files", read("kernels", "vars/main.yml")
    makefile = (files / "Makefile").read_text()
    listed = dict(re.findall(r"^(PROGRAMS|OPTIONAL) = (.*)$", makefile, re.MULTILINE))
    assert listed["OPTIONAL"].split() == list(variables["__kernels_libraries"])
    sources = [path for ending in ("c", "h", "cpp", "hpp") for path in files.rglob(f"*.{ending}")]
    folders = {
        f"{path.parent.relative_to(files)}/" for path in sources if "build" not in path.parts
    }
    assert {"", *folders} == set(variables["__kernels_source_folders"])


def test_a_benchmark_whose_program_may_be_left_out_does_not_stop_a_host() -> None:
    left_out = set(read("kernels", "vars/main.yml")["__kernels_libraries"])
    files = (ROOT / "templates/benchmarks").glob("*.yaml")
    needs = [yaml.safe_load(file.read_text())["needs"] for file in files]
    optional = {one["program"] for one in needs if one.get("optional")}
    assert left_out <= optional


def tasks_in(document: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All plays and tasks of a document, also those in blocks."""
    for entry in document:
        yield entry
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_in(entry.get(key) or [])


def runs_on_the_controller(task: dict[str, Any]) -> bool:
    """Whether a task or play runs on the controller, whichever host it is for."""
    where = (task.get("delegate_to"), task.get("connection"))
    return "local_action" in task or any(place in CONTROLLER for place in where)


def test_nothing_becomes_root_on_the_controller() -> None:
    roles = [path for role in ROLES.values() for path in role.glob("*/*.yml")]
    roles = [path for path in roles if path.parent.name in ("tasks", "handlers")]
    local = [
        (f"{file.relative_to(ROOT)}: {task['name']}", task.get("become"))
        for file in (*PLAYBOOKS, *roles)
        for task in tasks_in(yaml.safe_load(file.read_text()))
        if runs_on_the_controller(task)
    ]
    assert len(local) > 10
    # An inventory's or command line's become would otherwise run sudo on the controller.
    assert [name for name, become in local if become is not False] == []

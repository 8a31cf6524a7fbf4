"""Commands are found in documents, and documented_commands.yaml names each of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from documented_commands import (
    DRY_RUN,
    ELSEWHERE,
    HERE,
    NOT_RUN,
    SIMULATED,
    DocumentedCommand,
    commands_in,
    documented_commands,
    listed_commands,
)

DOCUMENT = r"""
Call `make`, `.venv/bin/snakemake -n` or `chaosity
plan --list`; `make` alone is a command, `chaosity` and `chaosity-place` are names.
So are `results/<host>`, `configure.yml` and `ansible_host: node01`, but `slurm.yml -e x=1` is not.

```
make run     # measure
lstopo \
    --of xml  machine.xml

chaosity compare A 'b.duckdb#cpu=EPYC'  # quoted
# only a comment
```

```yaml
make: no command
```

```sh
TOOL --new
```

```text
results/   a folder
```
"""


def test_commands_are_found_in_fences_and_in_the_text() -> None:
    assert set(commands_in(DOCUMENT)) == {
        "make",
        ".venv/bin/snakemake -n",
        "chaosity plan --list",
        "slurm.yml -e x=1",
        "make run",
        "lstopo --of xml machine.xml",
        "chaosity compare A 'b.duckdb#cpu=EPYC'",
        "TOOL --new",
    }


def test_a_test_replaces_placeholders_and_adds_options() -> None:
    command = DocumentedCommand("chaosity run FILE", HERE, {"FILE": "a.json"}, "-v", "touch a.json")
    assert command.shell_script == "set -e\ntouch a.json\nchaosity run a.json -v\n"
    with pytest.raises(ValueError, match="there is no 'HOST' to replace"):
        _ = DocumentedCommand("chaosity run FILE", HERE, {"HOST": "node01"}).shell_script


def test_every_documented_command_is_listed() -> None:
    listed = {entry.command for entry in listed_commands()}
    assert documented_commands() - listed == set(), "add them to tests/documented_commands.yaml"
    assert listed - documented_commands() == set(), "no document has these commands any more"


@pytest.mark.parametrize("entry", listed_commands(), ids=lambda entry: entry.command)
def test_an_entry_says_how_its_command_is_tested(entry: DocumentedCommand, root: Path) -> None:
    assert entry.how in (HERE, SIMULATED, DRY_RUN, ELSEWHERE, NOT_RUN)
    runs = entry.how in (HERE, SIMULATED, DRY_RUN)
    # A status of 0 alone would not show that the command did what the documents say.
    assert bool(entry.prints or entry.writes) == runs
    assert bool(entry.tests) == (entry.how == ELSEWHERE)
    assert bool(entry.reason) == (entry.how == NOT_RUN)
    assert entry.shell_script
    for test in entry.tests:
        file, name = test.split("::")
        functions = ast.walk(ast.parse((root / file).read_text()))
        assert name in {node.name for node in functions if isinstance(node, ast.FunctionDef)}

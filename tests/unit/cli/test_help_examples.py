"""The help of a command has an example that the command line accepts."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from chaosity.cli import COMMANDS, chaosity

WITH_EXAMPLE = [
    *("advise", "check", "explain", "history", "overview", "plan", "report", "reports", "schema"),
    *("show", "simulate", "tidy"),
]


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_only_example_of_a_command_has_options_that_the_command_knows(name: str):
    assert name in COMMANDS
    command = chaosity.get_command(click.Context(chaosity), name)
    assert command is not None and command.help is not None
    [line] = re.findall(r"Example: (.*)", command.help)
    program, own_name, *arguments = shlex.split(line)
    assert (program, own_name) == ("chaosity", name)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("--")} <= known

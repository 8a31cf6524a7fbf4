"""The help of a command has an example that the command line accepts."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from chaosity.cli import COMMANDS, chaosity
from chaosity.cli.weights import placement_argument_parser

WITH_EXAMPLE = [
    *("advise", "anomalies", "anova", "check", "compare", "discover", "explain", "export", "fit"),
    *("history", "measure", "next-round", "overview", "plan", "predict", "profile", "published"),
    *("report", "reports", "schema", "show", "simulate", "tidy", "topology", "weights"),
]


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_only_example_of_a_command_has_options_that_the_command_knows(name: str):
    assert name in COMMANDS
    command = chaosity.get_command(click.Context(chaosity), name)
    assert command is not None and command.help is not None
    [example] = re.findall(r"Example: ((?:.+\n?)+)", command.help)
    program, own_name, *arguments = shlex.split(example)
    assert (program, own_name) == ("chaosity", name)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("--")} <= known


def test_the_only_example_of_place_has_options_that_place_knows():
    parser = placement_argument_parser()
    [example] = re.findall(r"Example: (.*)", parser.epilog or "")
    program, own_name, *arguments = shlex.split(example)
    assert (program, own_name) == ("chaosity", "place")
    given = parser.parse_args(arguments)
    assert (given.policy, given.command[0]) == ("first_touch", "--")

"""The command line: ``chaosity COMMAND``, a command a step of the way and some for people."""

from __future__ import annotations

import sys

import click

from chaosity import __version__
from chaosity.cli.anomalies import anomalies
from chaosity.cli.anova import anova
from chaosity.cli.compare import compare_command
from chaosity.cli.export import export
from chaosity.cli.place import place
from chaosity.cli.plan import plan
from chaosity.cli.profile import profile
from chaosity.cli.published import published
from chaosity.cli.report import overview, report, reports
from chaosity.cli.run import run
from chaosity.cli.tidy import tidy
from chaosity.cli.topology import topology
from chaosity.cli.weights import weights
from chaosity.errors import UserError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="chaosity")
def chaosity() -> None:
    """Find out what a server's memory and storage really do."""


for command in (
    topology,
    plan,
    run,
    tidy,
    published,
    report,
    reports,
    overview,
    anomalies,
    weights,
    place,
    anova,
    export,
    compare_command,
    profile,
):
    chaosity.add_command(command)


def main() -> None:
    """Entry point: an error for the user is one sentence on standard error and exit status 2."""
    try:
        chaosity()
    except UserError as error:
        print(f"chaosity: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)  # the reader, such as head, has gone

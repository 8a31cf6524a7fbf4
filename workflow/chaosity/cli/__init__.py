"""The command line ``chaosity COMMAND``.

A command's module is imported only when the command runs, and it imports pandas, scipy, matplotlib
and the like inside its functions: so help and version are printed at once.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from chaosity import __version__
from chaosity.errors import UserError

# Name of the command -> module of this package, name of the command in it, help in one line.
COMMANDS = {
    "anomalies": ("anomalies", "anomalies", "Find faults of a machine in a matrix or in results."),
    "anova": ("anova", "anova", "Show which factors explain the differences in a CSV file."),
    "compare": ("compare", "compare_command", "Compare two selections, or find outlier hosts."),
    "export": ("export", "export", "Export results for hwloc, numactl and schedulers."),
    "overview": ("report", "overview", "Write the page of all hosts and configurations."),
    "place": ("place", "place", "Run a program with its pages on chosen nodes."),
    "plan": ("plan", "plan", "Show which points would be measured, and for how long."),
    "profile": ("profile", "profile", "Keep the results of all hosts in a database; share them."),
    "published": (
        "published",
        "published",
        "Draw figures from published measurements.",
    ),
    "report": ("report", "report", "Write the report of a host."),
    "reports": ("report", "reports", "Print the worst problem of each host and its report's path."),
    "run": ("run", "run", "Measure one point."),
    "tidy": ("tidy", "tidy", "Make the tidy table from the records."),
    "topology": ("topology", "topology", "Show the topology of a host."),
    "weights": ("weights", "weights", "Compute interleave weights from measured bandwidths."),
}


class LazyGroup(click.Group):
    """A group of commands that imports a command's module only for that command."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command, or None if the name is unknown."""
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(f"chaosity.cli.{module}"), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with their help from COMMANDS."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="chaosity")
def chaosity() -> None:
    """Measure what a server's memory and storage do, NUMA node by NUMA node."""


def main() -> None:
    """Run the command line; an error for the user is one sentence on standard error, status 2."""
    try:
        chaosity()
    except UserError as error:
        print(f"chaosity: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)  # the reader of the output, such as head, has ended

"""The command line ``chaosity COMMAND``.

The module of a command is imported only when the command runs. Modules of commands import heavy
libraries (pandas, scipy, vl-convert) inside functions. So ``--help`` and ``--version`` print at
once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from chaosity import __version__
from chaosity.errors import UserError, file_system_error
from chaosity.hosts.runner_command import put_own_programs_first_in_path

# Section of the help -> command -> help of the command in one line. The module
# `chaosity.cli.COMMAND` defines the command, unless `_MODULE_OF_COMMAND` names another module.
SECTIONS_OF_HELP = {
    "Look at results": {
        "reports": "Print the worst problem of each host and its report's path.",
        "show": "Show bandwidth and latency matrices of a host in the terminal.",
        "explain": "Print how a value was computed from the raw numbers.",
        "topology": "Show the topology of a host.",
        "report": "Write the HTML report of a host.",
        "overview": "Write the HTML page of all hosts and configurations.",
    },
    "Find faults and changes": {
        "check": "Check a host against its map in less than a minute.",
        "history": "Show since when a host is slow, and what changed then.",
        "compare": "Compare two selections of measurements, or find outlier hosts.",
        "anomalies": "Find faults of a machine in a matrix or in results.",
        "anova": "Show which factors explain the differences in a CSV file.",
    },
    "Use the map of a host": {
        "advise": "Advise where a program should run, and at what speed.",
        "place": "Run a program with its pages on the nodes that a policy names.",
        "weights": "Compute interleave weights from measured bandwidths.",
        "predict": "Predict values that a run did not measure.",
        "export": "Export results for other programs.",
        "profile": "Keep the results of all hosts in a database, and share them.",
    },
    "Plan, simulate, and read what others measured": {
        "plan": "Show which points would be measured, and for how long.",
        "schema": "Print the keys of a kind of YAML document, as JSON schema.",
        "simulate": "Write all records of simulated hosts at once.",
        "fit": "Fit the description of a simulated machine to a host.",
        "published": "Draw figures from measurements that others published.",
    },
    "Steps of a run (Snakemake runs them)": {
        "discover": "Discover a host in one configuration of its firmware.",
        "next-round": "Choose what a host measures next within its budget.",
        "measure": "Measure one point.",
        "tidy": "Make the table of all measured values from the records.",
    },
}
COMMANDS = {name: text for commands in SECTIONS_OF_HELP.values() for name, text in commands.items()}
_MODULE_OF_COMMAND = {
    **dict.fromkeys(("discover", "measure", "next-round", "plan"), "campaign"),
    **dict.fromkeys(("schema", "simulate", "tidy"), "campaign"),
    **dict.fromkeys(("fit", "predict"), "twin"),
    "history": "check",
    "place": "weights",
    **dict.fromkeys(("overview", "published", "reports"), "report"),
}
# Former name of a command -> present name.
_NEW_NAME_OF_COMMAND = {"run": "measure"}
# Former command -> the command line that does the same now.
_REPLACEMENT_OF_COMMAND = {
    "host": "snakemake --config 'hosts=[HOST]'",
    "rounds": "snakemake --config budget=2h",
}


class LazyCommandGroup(click.Group):
    """A group of commands that imports the module of a command only if the command is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the module of a command and return the command; None if the name is unknown."""
        if name in _NEW_NAME_OF_COMMAND:
            raise UserError(
                f"chaosity {name} has a new name",
                remedy=f"type chaosity {_NEW_NAME_OF_COMMAND[name]}",
            )
        if name in _REPLACEMENT_OF_COMMAND:
            remedy = f"type {_REPLACEMENT_OF_COMMAND[name]}"
            raise UserError(f"chaosity {name} does not exist any more", remedy=remedy)
        if name not in COMMANDS:
            return None
        module = import_module(f"chaosity.cli.{_MODULE_OF_COMMAND.get(name, name)}")
        commands = (value for value in vars(module).values() if isinstance(value, click.Command))
        return next(command for command in commands if command.name == name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section of commands, with one line of help for each command."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS_OF_HELP.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.group(cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="chaosity")
def chaosity() -> None:
    """Measure a server's memory and storage, NUMA node by NUMA node."""


def main() -> None:
    """Run the command line, and print each error that a user can fix as one sentence.

    An error that a user can fix is a `UserError`, or an error of a file that cannot be read or
    written. The exit status after a printed error is 2.
    """
    put_own_programs_first_in_path()
    try:
        chaosity()
    except UserError as error:
        print(f"chaosity: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)  # the reader of the output, such as head, has ended
    except OSError as error:
        # An error about a file has the name of the file. An error without a name is about standard
        # output.
        sentence = file_system_error(error, Path("/proc/self/fd/1").resolve())
        if sentence is None and error.filename:
            sentence = UserError(error.strerror or str(error), str(error.filename))
        if sentence is None:
            raise
        print(f"chaosity: {sentence}", file=sys.stderr)
        sys.exit(2)

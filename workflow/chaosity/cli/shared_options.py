"""Options, types and parsers that several commands share.

The paths of the config and of the published forms are repeated from `chaosity.documents`, since an
import of that package (with pydantic and yaml) would double the time of ``--help``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError

_ROOT = Path(__file__).resolve().parents[3]
FORMS = sorted(path.stem for path in (_ROOT / "templates" / "published").glob("*.yaml"))

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class _ResultsPath(click.Path):
    """A path to a file, or to the only folder of results at or below the given folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            UserError: the folder has no results, or those of several configurations.
        """
        from chaosity.result_folders import find_results_folder

        path = Path(str(super().convert(value, param, ctx)))
        return find_results_folder(path) if path.is_dir() else path


RESULTS_FOLDER = _ResultsPath(exists=True, file_okay=False, path_type=Path)
FILE_OR_RESULTS = _ResultsPath(exists=True, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
UNIT_OPTION = click.option(
    "--unit",
    help="Unit of the values, such as MB/s or ns. Default: the unit in the name of "
    "the file; without one, the unit that fits the size of the values.",
)
DWP_OPTION = click.option(
    "--dwp",
    type=float,
    default=0.0,
    show_default=True,
    help="Data-to-worker proximity: 0 keeps the canonical weights, 1 puts all pages on the "
    "workers' nodes.",
)
TOPOLOGY_OF_MACHINE_OPTION = click.option(
    "--topology", type=EXISTING_FILE, help="With --machine: its topology, an hwloc XML file."
)
CONFIG_OPTION = click.option(
    "--config",
    "config_file",
    type=EXISTING_FILE,
    default=_ROOT / "config" / "config.yaml",
    show_default="config/config.yaml of the project",
    help="Config of the workflow.",
)


def is_option_typed(parameter: str) -> bool:
    """Return whether the user typed the option that sets this parameter of the running command."""
    return click.get_current_context().get_parameter_source(parameter) is (
        ParameterSource.COMMANDLINE
    )


def refuse_options_without_effect(because: str, *parameters: str) -> None:
    """Refuse options of the running command that the user typed although they have no effect.

    `because` is the reason, such as "with --json"; `parameters` are the options' parameter names.

    Raises:
        UserError: the user typed one of these options.
    """
    for option in click.get_current_context().command.params:
        if option.name in parameters and is_option_typed(option.name):
            raise UserError(f"it has no effect {because}", option.opts[0], "leave it out")


def parse_worker_nodes(text: str) -> list[int]:
    """Return the nodes in a list such as 0,2-3 in the order of the list; nodes can occur twice.

    Raises:
        UserError: the text is not such a list.
    """
    try:
        return [node for part in text.split(",") for node in parse_cpu_list(part)]
    except ValueError as error:
        raise UserError(str(error), "--workers", "write a list such as 0,1 or 0-3") from None

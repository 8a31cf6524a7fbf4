"""Options, types and parsers that several commands share.

The paths of the config and the inventory are repeated from `chaosity.checked_yaml_files`, since an
import of that module (with jsonschema and yaml) would double the time of ``--help``.
"""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError

_ROOT = Path(__file__).resolve().parents[3]
FORMS = sorted(path.stem for path in (_ROOT / "templates" / "published").glob("*.yaml"))

EXISTING_PATH = click.Path(exists=True, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
UNIT_OPTION = click.option(
    "--unit",
    help="Unit of the values in MATRIX.csv, such as MB/s or ns. Default: the unit in the name of "
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
CONFIG_OPTION = click.option(
    "--config",
    "config_file",
    type=EXISTING_FILE,
    default=_ROOT / "workflow" / "config" / "config.yaml",
    show_default=True,
    help="Config of the workflow.",
)


def parse_worker_nodes(text: str) -> list[int]:
    """Return the nodes in a list such as 0,2-3 in the order of the list; nodes can occur twice.

    Raises:
        UserError: the text has another form.
    """
    try:
        return [node for part in text.split(",") for node in parse_cpu_list(part)]
    except ValueError as error:
        raise UserError(str(error), "--workers", "write a list such as 0,1 or 0-3") from None

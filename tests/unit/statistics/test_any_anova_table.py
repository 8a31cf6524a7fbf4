"""Any table of a user gives an analysis of variance or one sentence."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from chaosity.cli.anova import anova_command
from strategies import change_text, changed, check_any_input, write_text

TABLE = "node,kernel,run,MBps\n" + "".join(
    f"{node},{kernel},{run},{100 + 10 * node + run}\n"
    for node in (0, 1)
    for kernel in ("copy", "triad")
    for run in (1, 2, 3)
)


def analyse(text: str, folder: Path) -> None:
    path = write_text(folder / "speeds.csv", text)
    options = ["--response", "MBps", "--factors", "node,kernel", "--block", "run", "--json"]
    with contextlib.redirect_stdout(io.StringIO()):
        anova_command.main([str(path), *options], standalone_mode=False)


def test_any_table_is_analysed_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([TABLE], change_text, 3), analyse, tmp_path, 0.4)

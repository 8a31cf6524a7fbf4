"""Write the tables of experiments in the README from the experiments' files and the config.

`make docs` runs this file; a test compares the README with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS, ROOT, load_experiment, yaml_file_names

README = ROOT / "README.md"


def _table(names: Iterable[str]) -> str:
    rows = [f"| `{name}` | {load_experiment(name)['question']} |" for name in names]
    return "\n".join(["| experiment | question |", "|---|---|", *rows])


def with_current_tables(text: str) -> str:
    """Return the text of the README with a row for each experiment in its two tables."""
    default = read_config()["experiments"]
    others = [name for name in yaml_file_names(EXPERIMENTS) if name not in default]
    for title, names in (("default", default), ("other", others)):
        start = f"<!-- {title} experiments, written by `make docs` -->\n"
        found = re.compile(f"({re.escape(start)}).*?(<!-- end -->)", re.DOTALL)
        table = _table(names)
        text = found.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


if __name__ == "__main__":
    README.write_text(with_current_tables(README.read_text(encoding="utf-8")), encoding="utf-8")

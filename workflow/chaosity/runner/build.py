"""Packs the runner into one file that any Python 3.11 runs: ``python -m chaosity.runner.build``."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipapp
from pathlib import Path

# What the zipapp holds besides the runner itself.
SHARED = ("__init__.py", "records.py")


def build(output: Path) -> None:
    """Write the zipapp; the same sources give the same bytes apart from time stamps."""
    package = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "chaosity"
        shutil.copytree(
            package / "runner", inside / "runner", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in SHARED:
            shutil.copy2(package / name, inside / name)
        output.parent.mkdir(parents=True, exist_ok=True)
        zipapp.create_archive(
            folder, output, interpreter="/usr/bin/env python3", main="chaosity.runner.__main__:main"
        )


if __name__ == "__main__":
    build(Path(sys.argv[1]))

"""Packs the runner and `place` into one file: ``python -m chaosity.runner.build_zipapp FILE``.

Any Python 3.11 runs it.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from functools import cache
from pathlib import Path

# What the zipapp holds besides the rooms that it runs.
ROOMS = ("records", "runner", "place")
SHARED = ("__init__.py", "errors.py")
# One file holds both programs: with `--place` as its first word it is chaosity-place.
START = """import sys

if sys.argv[1:2] == ["--place"]:
    del sys.argv[1]
    from chaosity.place.__main__ import main
else:
    from chaosity.runner.__main__ import main

main()
"""


def zipapp_bytes() -> bytes:
    """The zipapp; the same sources give the same bytes, so an unchanged one is left alone.

    ``zipapp`` itself would put today's time stamps into it.
    """
    package = Path(__file__).resolve().parent.parent
    rooms = (path for room in ROOMS for path in (package / room).rglob("*.py"))
    sources = [*rooms, *(package / name for name in SHARED)]
    contents = {f"chaosity/{path.relative_to(package)}": path.read_text() for path in sources}
    contents["__main__.py"] = START
    buffer = io.BytesIO(b"#!/usr/bin/env python3\n")
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@cache
def zipapp_digest() -> str:
    """SHA-256 of the zipapp that these sources give."""
    return hashlib.sha256(zipapp_bytes()).hexdigest()


def write_zipapp(output: Path) -> None:
    """Write the zipapp to a file that can be run."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(zipapp_bytes())
    output.chmod(0o755)


if __name__ == "__main__":
    write_zipapp(Path(sys.argv[1]))

"""Pack the runner and `place` into one zipapp: ``python -m chaosity.runner.build_zipapp FILE``.

Python 3.11 or later runs the zipapp.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from functools import cache
from pathlib import Path

# Packages and files of `chaosity` that the zipapp contains.
PACKAGES_IN_ZIPAPP = ("records", "runner", "place")
FILES_IN_ZIPAPP = ("__init__.py", "cpusets.py", "errors.py")
# The zipapp runs chaosity-place if its first argument is `--place`, and else the runner.
ZIPAPP_MAIN_SOURCE = """import sys

if sys.argv[1:2] == ["--place"]:
    del sys.argv[1]
    from chaosity.place.__main__ import main
else:
    from chaosity.runner.__main__ import main

main()
"""


def zipapp_bytes() -> bytes:
    """Return the content of the zipapp; the same sources give the same bytes.

    The standard ``zipapp`` module is not used, since it would write the present time into the
    zipapp.
    """
    package = Path(__file__).resolve().parent.parent
    rooms = (path for room in PACKAGES_IN_ZIPAPP for path in (package / room).rglob("*.py"))
    sources = [*rooms, *(package / name for name in FILES_IN_ZIPAPP)]
    contents = {f"chaosity/{path.relative_to(package)}": path.read_text() for path in sources}
    contents["__main__.py"] = ZIPAPP_MAIN_SOURCE
    buffer = io.BytesIO(b"#!/usr/bin/env python3\n")
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@cache
def zipapp_sha256() -> str:
    """Return the SHA-256 of the zipapp made from these sources."""
    return hashlib.sha256(zipapp_bytes()).hexdigest()


def write_zipapp(output: Path) -> None:
    """Write the zipapp to an executable file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(zipapp_bytes())
    output.chmod(0o755)


if __name__ == "__main__":
    write_zipapp(Path(sys.argv[1]))

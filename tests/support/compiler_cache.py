"""Compilers for tests that build the kernels often: they keep objects and give them out again."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Goes with the other things that were built, by `make clean`.
OBJECTS = ROOT / "build/compiled"

# An object is kept under a hash of the compiler, its arguments without the path of the output, its
# source, and all headers where it is started. All other uses go to the real compiler.
WRAPPER = """#!/bin/sh
compiler={compiler}
words= output= previous= compiles= source=
for word; do
    if [ "$previous" = -o ]; then output=$word; else words="$words $word"; fi
    [ "$word" = -c ] && compiles=yes
    case $word in *.c | *.cpp) source=$word ;; esac
    previous=$word
done
if [ -z "$compiles" ] || [ -z "$output" ] || [ -z "$source" ]; then exec "$compiler" "$@"; fi
headers=$(find . -name build -prune -o \\( -name '*.h' -o -name '*.hpp' \\) -print | sort)
kept={objects}/$( (echo "$compiler $words"; cat $source $headers) | sha256sum | cut -c 1-32)
depends=${{output%.o}}.d
if [ -e "$kept.o" ]; then
    cp "$kept.o" "$output"
    [ ! -e "$kept.d" ] || sed "s,^[^ ]*\\.o:,$output:," "$kept.d" > "$depends"
    exit 0
fi
"$compiler" "$@" || exit
mkdir -p {objects} 2> /dev/null && [ -w {objects} ] || exit 0
[ ! -e "$depends" ] || {{ cp "$depends" "$kept.d.$$" && mv "$kept.d.$$" "$kept.d"; }}
cp "$output" "$kept.o.$$" && mv "$kept.o.$$" "$kept.o"
"""


def path_with_cache(folder: Path, path: str) -> str:
    """Put compilers that keep objects in front of a search path.

    Args:
        folder: where to write the programs gcc and g++.
        path: the search path, as PATH has it.

    Returns:
        The new search path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("gcc", "g++"):
        compiler = shutil.which(name, path=path)
        wrapper, text = folder / name, WRAPPER.format(compiler=compiler, objects=OBJECTS)
        if not wrapper.exists() or wrapper.read_text() != text:
            wrapper.write_text(text)
            wrapper.chmod(0o755)
    return f"{folder}:{path}"

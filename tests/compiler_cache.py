"""Compilers for tests that build the kernels often: they keep objects and give them out again."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Goes with the other things that were built, by `make clean`.
OBJECTS = ROOT / "build/compiled"

# An object is kept under a hash of the compiler, its options and what the preprocessor makes of the
# source: a macro that a file does not use, such as one for a defect, does not ask for another
# object of the file. All other uses go to the real compiler.
WRAPPER = """#!/bin/sh
compiler={compiler}
case " $* " in *" -c "*) ;; *) exec "$compiler" "$@";; esac
output= previous= depends=
for word; do
    shift
    if [ "$previous" = -o ]; then output=$word; previous=; continue; fi
    case $word in
    -o) previous=-o; continue;;
    -c) continue;;
    -MMD) depends="-MMD -MP"; continue;;
    -MP) continue;;
    esac
    set -- "$@" "$word"
done
made=${{output%.o}}.d
kept={objects}/$( (echo "$compiler"; printf '%s\\n' "$@" | grep -v '^-[DI]'
    "$compiler" "$@" -E 2> /dev/null) | sha256sum | cut -c 1-32)
if [ -e "$kept.o" ]; then
    cp "$kept.o" "$output"
    [ ! -e "$kept.d" ] || sed "s,^[^ ]*\\.o:,$output:," "$kept.d" > "$made"
    exit 0
fi
"$compiler" "$@" -c $depends -o "$output" || exit
mkdir -p {objects} 2> /dev/null && [ -w {objects} ] || exit 0
[ ! -e "$made" ] || {{ cp "$made" "$kept.d.$$" && mv "$kept.d.$$" "$kept.d"; }}
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

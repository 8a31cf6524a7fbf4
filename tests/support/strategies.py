"""Hypothesis strategies for input that others write, and the property of each parser of it.

For any input, a parser returns a value or raises an error with one sentence. Changed good input
gets further into a parser than generated input, so most of these strategies change samples.
"""

from __future__ import annotations

import copy
import json
import re
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaosity.errors import UserError, printable_text

# Numbers that readers meet rarely: huge, negative, not finite, of other scripts.
ODD_NUMBERS = (
    *("0", "-1", "4.5", "1e999", "-1e308", "5e-324", "nan", "-Infinity", "1_000", "0x10", "007"),
    *(str(2**31), str(2**64), "9" * 40, "9" * 5000, "1,5", "3-1", "0-99999999999"),
    *("\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "0xffffffff," * 3),
)
# Texts that mean something to a shell, a browser, a spreadsheet, a terminal, Jinja, YAML or a path.
ODD_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "a\nb",
        "\r",
        "\x1b[31mred",
        "\x9b2J",
        "\u202etxt.exe",
        "$(touch pwned)",
        "-rf",
    ),
    *("../../x", "/etc/passwd", "..", "a/b", "<script>", "]]>", "&lt;", "=cmd|' /C calc'!A0", '"'),
    *("{{ 7 * 7 }}", "{% for x in y %}", "{{ lookup('pipe', 'id') }}", "!!python/object:os.system"),
    *("\N{SNOWMAN}" * 3, "x" * 70_000),
)
_ODD_FLOATS = (0, -1, 1.5, 2**63, 2**64, 10**400, 1e308, 5e-324, float("nan"), float("inf"))
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, [], {}, [[]], {"": None}, ["x", 1], "\ud800"),
    *(*_ODD_FLOATS, *ODD_NUMBERS, *ODD_TEXTS),
)
_DEEP = 100_000
_ODD_BYTES = (b"", b"\0", b"\xff" * 8, b"\0\0\0\x80", b"\x1f\x8b", b"PK")
# Processor time for one input: the slowest good input takes 0.3 s.
_MOST_SECONDS = 20.0
_MOST_BYTES = 3 * 2**30
_LONGEST_SENTENCE = 13_000

Draw = st.DrawFn
Change = Callable[[Draw, Any], Any]


def changed(samples: Sequence[Any], change: Change, most: int = 5) -> st.SearchStrategy[Any]:
    """Return samples that were changed up to `most` times."""

    @st.composite
    def inputs(draw: Draw) -> Any:
        sample = draw(st.sampled_from(samples))
        for _ in range(draw(st.integers(0, most))):
            sample = change(draw, sample)
        return sample

    return inputs()


def change_bytes(draw: Draw, data: bytes) -> bytes:
    """Replace, remove, insert or repeat some bytes, or cut the end off."""
    at = draw(st.integers(0, len(data)))
    end = at + draw(st.sampled_from((1, 0, 4, 64, len(data))))
    new = draw(st.sampled_from((*_ODD_BYTES, data[at:end] * 2)) | st.binary(max_size=8))
    return data[:at] + new + data[end:]


def change_text(draw: Draw, text: str) -> str:
    """Change a word, a digit, a line or some bytes of a text."""
    kind = draw(st.sampled_from(("word", "digit", "line", "bytes")))
    places = [
        match.span() for match in re.finditer(r"[^\s,;|]+" if kind == "word" else r"\d", text)
    ]
    if kind in ("word", "digit") and places:
        begin, end = draw(st.sampled_from(places))
        is_number = text[begin].isdigit()
        new = draw(st.sampled_from(ODD_NUMBERS if is_number else (*ODD_NUMBERS, *ODD_TEXTS)))
        return text[:begin] + new + text[end:]
    if kind == "line" and text:
        lines = text.splitlines(keepends=True)
        line = lines.pop(draw(st.integers(0, len(lines) - 1)))
        for _ in range(draw(st.integers(0, 2))):
            lines.insert(draw(st.integers(0, len(lines))), line)
        return "".join(lines)
    return change_bytes(draw, text.encode(errors="replace")).decode(errors="replace")


def change_document(draw: Draw, document: Any) -> Any:
    """Replace, remove, rename or repeat one value of a document of lists and mappings."""
    document, places = copy.deepcopy(document), []
    rest = [document]
    while rest:
        container = rest.pop()
        if isinstance(container, dict | list):
            keys = list(container) if isinstance(container, dict) else range(len(container))
            places += [(container, key) for key in keys]
            rest += [container[key] for key in keys]
    if not places:
        return draw(st.sampled_from(ODD_VALUES))
    container, key = draw(st.sampled_from(places))
    kind = draw(st.sampled_from(("replace", "remove", "rename", "repeat", "other place")))
    value = container[key]
    if kind == "remove":
        del container[key]
    elif kind == "rename" and isinstance(container, dict):
        container[draw(st.sampled_from(ODD_TEXTS))] = container.pop(key)
    elif kind == "repeat" and isinstance(container, list):
        container.insert(key, value)
    elif kind == "other place":
        other, place = draw(st.sampled_from(places))
        container[key] = copy.deepcopy(other[place])
    else:
        is_number = isinstance(value, int | float) and draw(st.booleans())
        container[key] = draw(st.sampled_from(_ODD_FLOATS if is_number else ODD_VALUES))
    return document


def documents() -> st.SearchStrategy[Any]:
    """Return JSON documents of any form."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=12,
    )


def changed_json(samples: Sequence[Any]) -> st.SearchStrategy[str]:
    """Return JSON texts: changed documents and texts, any documents, and deep nesting."""
    return st.one_of(
        *[changed(samples, change_document).map(json.dumps)] * 4,
        changed([json.dumps(sample) for sample in samples], change_text),
        documents().map(json.dumps),
        st.sampled_from(["[" * _DEEP, '{"a":' * _DEEP, "", "null", "1e999"]),
    )


def write_text(path: Path, text: str) -> Path:
    """Write any text, also one with lone surrogates; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


class HangError(BaseException):
    """An input takes too much processor time; no parser catches this."""


def _hang(*_: object) -> None:
    raise HangError


@contextmanager
def _limits() -> Iterator[None]:
    """Limit processor time and memory: an input that needs more fails instead of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MOST_BYTES
    former, memory = signal.signal(signal.SIGPROF, _hang), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, memory[1]))
    signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
        resource.setrlimit(resource.RLIMIT_AS, memory)


def check_any_input(
    inputs: st.SearchStrategy[Any],
    parse: Callable[[Any, Path], object],
    folder: Path,
    share: float = 1.0,
    refusals: tuple[type[Exception], ...] = (UserError,),
) -> None:
    """Check that a parser returns a value or raises one sentence, and writes only into its folder.

    Args:
        inputs: what it is given.
        parse: the call with an input and an empty folder for its files.
        folder: an empty folder, of which it gets a part.
        share: share of the usual number of examples; slow parsers get fewer.
        refusals: errors that its callers turn into a sentence or a failed record.
    """
    own = folder / "own"

    @settings(
        max_examples=round(settings().max_examples * share),
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def check(value: Any) -> None:
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        with _limits():
            try:
                parse(value, own)
            except refusals as error:
                sentence = str(error)
                assert sentence.strip()
                assert len(sentence) < _LONGEST_SENTENCE
                if isinstance(error, UserError):
                    assert printable_text(sentence).split("\n") == [sentence]
        assert list(folder.iterdir()) == [own], "it wrote outside its folder"

    check()


@cache
def simulated_records() -> list[Any]:
    """Return a simulated record of each experiment: raw output, as the tools print it."""
    from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER
    from chaosity.simulation.simulated_records import simulate_replicate
    from machines import planned

    names = sorted(path.stem for path in EXPERIMENTS_FOLDER.glob("*.yaml"))
    few: dict[str, Any] = {"replicates": 1, "budget": None, "sample": dict.fromkeys(names, 1)}
    host = planned("xeon_8358", faults=None, all_points=True, experiments=names, **few)
    return [
        json.loads(json.dumps(simulate_replicate(point, 1, host.model))) for point in host.points
    ]

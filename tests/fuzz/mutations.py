"""Mutate good input: bytes, texts, JSON documents and XML trees."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from lxml import etree

# Numbers as texts that readers meet rarely: huge, negative, not finite, of other scripts.
ODD_NUMBERS = (
    *("0", "-1", "1e999", "-1e308", "nan", "NaN", "inf", "-Infinity", "1_000", "0x10", "007"),
    *(str(2**31), str(2**63), str(2**64), "9" * 40, "9" * 5000, "\N{SUPERSCRIPT TWO}", "1e-320"),
    *(
        "\N{ARABIC-INDIC DIGIT THREE}",
        "1,5",
        "0-99999999999",
        "3-1",
        "0xffffffff," * 3,
        "+7",
        "4.5",
    ),
)
# Texts that mean something to a shell, a browser, a spreadsheet, a terminal, Jinja, YAML or a path.
ODD_TEXTS = (
    *("", " ", "\0", "a\0b", "\n", "a\nb", "\r", "\x1b[31mred\x1b[0m", "\x9b2J", "\u202etxt.exe"),
    *("$(touch pwned)", "`id`", "; rm -rf x", "../../x", "/etc/passwd", "..", ".", "a/b", "-rf"),
    *("<script>alert(1)</script>", "]]>", "&lt;", "=cmd|' /C calc'!A0", "+1", "@SUM(A1)", "-2+3"),
    *("{{ 7 * 7 }}", "{% for x in y %}", "{{ lookup('pipe', 'id') }}", "!!python/object:os.system"),
    *("\N{SNOWMAN}" * 3, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "x" * 70_000),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.0, 2**31, 2**63, 2**64, 10**400, 1e308),
    *(float("nan"), float("inf"), float("-inf"), [], {}, [[]], {"": None}, [None], ["x", 1]),
    "\ud800",
    *ODD_NUMBERS,
    *ODD_TEXTS,
)
DEEP = 100_000

Change = Callable[[random.Random, Any], Any]


def seeds() -> st.SearchStrategy[random.Random]:
    """Return random generators; hypothesis shows and repeats the seed of a failing input."""
    return st.integers(0, 2**32).map(random.Random)


def mutated(samples: Sequence[Any], change: Change, most: int = 6) -> st.SearchStrategy[Any]:
    """Return samples that were changed once or several times; rarely an unchanged sample."""

    def apply(sample: Any, generator: random.Random, times: int) -> Any:
        for _ in range(times):
            sample = change(generator, sample)
        return sample

    return st.builds(apply, st.sampled_from(samples), seeds(), st.integers(0, most))


def change_bytes(generator: random.Random, data: bytes) -> bytes:
    """Flip, remove, repeat or replace some bytes, or cut the end off."""
    at, length = generator.randrange(len(data) + 1), generator.choice((1, 1, 2, 4, 64))
    kind = generator.randrange(6)
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << generator.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + length :]
    if kind == 3:
        return data[: at + length] + data[at:]
    if kind == 4:
        return data[:at] + generator.randbytes(length) + data[at + length :]
    value = generator.choice((0, 1, 2**7, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
    size = generator.choice((4, 8))
    return data[:at] + (value % 2 ** (8 * size)).to_bytes(size, "little") + data[at + size :]


def change_text(generator: random.Random, text: str) -> str:
    """Change a line or a word of a text, or some characters."""
    kind = generator.randrange(8)
    if kind == 0:
        return change_bytes(generator, text.encode(errors="replace")).decode(errors="replace")
    lines = text.splitlines(keepends=True) or [""]
    at = generator.randrange(len(lines))
    if kind == 1:
        return "".join(lines[:at] + lines[at + 1 :])
    if kind == 2:
        return "".join(lines[: at + 1] + lines[at:])
    if kind == 3:
        other = generator.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
        return "".join(lines)
    words = lines[at].split(" ")
    word = generator.randrange(len(words))
    if kind == 4:
        digits = [index for index, letter in enumerate(lines[at]) if letter.isdecimal()]
        if digits:
            place = generator.choice(digits)
            lines[at] = lines[at][:place] + generator.choice(ODD_NUMBERS) + lines[at][place + 1 :]
        return "".join(lines)
    words[word] = generator.choice(ODD_NUMBERS if kind in (5, 6) else ODD_TEXTS)
    lines[at] = " ".join(words)
    return "".join(lines)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return the container and the key or index of every value in a document."""
    found, rest = [], [document]
    while rest:
        container = rest.pop()
        keys = container if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                rest.append(container[key])
    return found


def change_document(generator: random.Random, document: Any) -> Any:
    """Change one value, key or item of a JSON document."""
    if not isinstance(document, dict | list):
        return generator.choice(ODD_VALUES)
    document = copy.deepcopy(document)
    places = _places(document)
    if not places or generator.randrange(50) == 0:
        return generator.choice(ODD_VALUES)
    container, key = generator.choice(places)
    kind = generator.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1:
        other, from_key = generator.choice(places)
        container[key] = copy.deepcopy(other[from_key]) if from_key in _keys(other) else None
    elif kind == 2 and isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    elif kind == 3 and isinstance(container, dict):
        container[str(generator.choice(ODD_TEXTS))] = container.pop(key)
    else:
        container[key] = copy.deepcopy(generator.choice(ODD_VALUES))
    return document


def _keys(container: Any) -> Any:
    return container if isinstance(container, dict) else range(len(container))


def json_text_of(document: Any) -> str:
    """Return a document as JSON, with NaN and infinity as Python writes them."""
    return json.dumps(document)


def mutated_json(documents: Sequence[Any]) -> st.SearchStrategy[str]:
    """Return JSON texts: good documents with changed values, and changed or generated texts."""
    texts = [json.dumps(document) for document in documents]
    return st.one_of(
        *[mutated(documents, change_document).map(json_text_of)] * 4,
        mutated(texts, change_text),
        generated_json().map(json_text_of),
        st.sampled_from(["[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP, "", "null", "1e999"]),
    )


def generated_json() -> st.SearchStrategy[Any]:
    """Return JSON documents of any form."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=12,
    )


def change_xml(generator: random.Random, root: etree._Element) -> etree._Element:
    """Change one element or attribute of an XML tree."""
    root = copy.deepcopy(root)
    elements = list(root.iter(etree.Element))
    element = generator.choice(elements)
    parent, kind = element.getparent(), generator.randrange(8)
    if kind == 0 and parent is not None:
        parent.remove(element)
    elif kind == 1 and parent is not None:
        parent.insert(generator.randrange(len(parent) + 1), copy.deepcopy(element))
    elif kind == 2 and parent is not None:
        target = generator.choice(elements)
        target.append(copy.deepcopy(element))
    elif kind == 3:
        element.text = _xml_text(generator.choice(ODD_NUMBERS))
    elif element.attrib:
        name = generator.choice(sorted(map(str, element.attrib)))
        if kind == 4:
            del element.attrib[name]
        elif kind == 5:
            other = generator.choice(elements)
            if other.attrib:
                element.set(name, generator.choice(sorted(map(str, other.attrib.values()))))
        else:
            element.set(name, _xml_text(generator.choice((*ODD_NUMBERS, *ODD_TEXTS))))
    return root


def _xml_text(text: str) -> str:
    """Return a text without the characters that XML cannot hold."""
    return "".join(letter for letter in text if letter in "\t\n\r" or ord(letter) >= 32)

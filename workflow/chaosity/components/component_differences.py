"""Describe a component's values, and the differences of two of its documents, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chaosity.units import format_binary_bytes, format_quantity

# Items of longer lists, such as CPU flags, are only counted; the component file has all items.
_MOST_ITEMS = 12
_LONGEST_VALUE = 90


def component_differences(
    old: Mapping[str, object], new: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Yield each key with different values in words, also of nested documents, and both values.

    The text "before -> after" is None if both have the same text, as long lists have.
    """
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        name = f"{prefix} {key_as_words(key)}".strip()
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from component_differences(before, after, name)
            continue
        texts = [_short_text(key, held[key]) if key in held else "nothing" for held in (old, new)]
        arrow = " \N{RIGHTWARDS ARROW} ".join(texts)
        yield name, None if texts[0] == texts[1] else arrow


def _short_text(key: str, value: object) -> str:
    text = component_value_text(key, value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def key_as_words(name: str) -> str:
    """Return a key as words, without its unit, since the value's text has the unit."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def component_value_text(name: str, value: object) -> str:
    """Return a value of a component's document as text, with the unit that its key names."""
    if value is None or value == "":
        return "unknown" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return format_binary_bytes(value)
        return format_quantity(name, value) if name.endswith(("_hertz", "_seconds")) else str(value)
    if isinstance(value, list | tuple):
        if len(value) > _MOST_ITEMS:
            return f"{len(value)} values, see the component file"
        return ", ".join(component_value_text(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        items = value.items()
        return " ".join(f"{key_as_words(key)} {component_value_text(key, v)}" for key, v in items)
    return str(value)

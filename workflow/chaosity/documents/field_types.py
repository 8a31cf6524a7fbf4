"""Types of fields that several documents have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

NAME_PATTERN = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
# An endpoint of a load of the same point: ``storage.initiator``.
Side = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.(initiator|target|buffers)$")]
Text = Annotated[str, MinLen(1)]
Texts = Annotated[list[Text], MinLen(1)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Gt(0), Lt(1)]
Count = Annotated[int, Ge(1)]
Index = Annotated[int, Ge(0)]
Value = str | float | bool | None

Element = TypeVar("Element")


def _list_or_single(value: object) -> str:
    return "list" if isinstance(value, list) else "single"


# A document may give a single element without a list.
OneOrSeveral = Annotated[
    Annotated[Element, Tag("single")] | Annotated[list[Element], MinLen(1), Tag("list")],
    Discriminator(_list_or_single),
]


def _different(values: list[Element]) -> list[Element]:
    if twice := [value for number, value in enumerate(values) if value in values[:number]]:
        raise PydanticCustomError(
            "twice", "{value} is in the list twice", {"value": repr(twice[0])}
        )
    return values


# Elements of a list that differ.
DIFFERENT = AfterValidator(_different)


def with_one_key_of(*keys: str) -> AfterValidator:
    """Return a check that a mapping has exactly one of these keys."""

    def check(document: Mapping[str, Any]) -> Mapping[str, Any]:
        if sum(key in document for key in keys) != 1:
            wanted = {"keys": ", ".join(keys)}
            raise PydanticCustomError("keys", "exactly one of these keys is needed: {keys}", wanted)
        return document

    return AfterValidator(check)


def key_needs(key: str, other: str) -> AfterValidator:
    """Return a check that a mapping with a key has another key too."""

    def check(document: Mapping[str, Any]) -> Mapping[str, Any]:
        if key in document and other not in document:
            names = {"key": repr(key), "other": repr(other)}
            raise PydanticCustomError("needs", "the key {key} needs the key {other}", names)
        return document

    return AfterValidator(check)

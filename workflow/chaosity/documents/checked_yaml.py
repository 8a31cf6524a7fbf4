"""Read YAML files of any author within limits, and check their documents against types."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import yaml
from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import TypedDictSchema
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from chaosity.errors import UserError, suggest_allowed_names

# Limits for a YAML file that is read. An alias counts as often as the values to which it refers.
# The longest file of the project has 10 kB.
_MOST_YAML_CHARACTERS = 2**20
_MOST_YAML_VALUES = 100_000
_MOST_YAML_LEVELS = 100
_MOST_NUMBER_BITS = 1024
# Largest number of signs of nesting in a YAML text. libyaml accepts any depth of nesting, but
# crashes beyond some 30,000 levels, so texts with more signs are not loaded.
_MOST_UNCHECKED_NESTING_SIGNS = 5000
# The parser of libyaml is nine times as fast as the parser in Python, and every command reads some
# 50 files.
YAML_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def read_yaml(path: Path) -> Any:
    """Return the document in a YAML file.

    Raises:
        UserError: the file is missing, is not YAML, or is too large; the error names line and
            column.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_MOST_YAML_CHARACTERS + 1)
        _check_yaml_text(text, str(path))
        document = yaml.load(text, YAML_LOADER)
        _check_yaml_document(document, str(path))
        return document
    except OSError as error:
        raise UserError(f"the file cannot be read ({error.strerror})", str(path)) from error
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2026-13-01 raises a ValueError
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", error)
        raise UserError(f"the file is not YAML: {problem}", place) from error


def _nesting_error(where: str) -> UserError:
    return UserError(f"the file has more than {_MOST_YAML_LEVELS} levels of nesting", where)


def _check_yaml_text(text: str, where: str) -> None:
    """Check that a YAML text is not too long, and not so deeply nested that the parser crashes."""
    if len(text) > _MOST_YAML_CHARACTERS:
        raise UserError(f"the file has more than {_MOST_YAML_CHARACTERS} characters", where)
    # A YAML text needs at least one of the signs below for each level of nesting.
    if sum(map(text.count, "[{-?:")) < _MOST_UNCHECKED_NESTING_SIGNS:
        return
    depth = 0
    for event in yaml.parse(text, YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_YAML_LEVELS:
            raise _nesting_error(where)


def _check_yaml_document(document: Any, where: str) -> None:
    """Check the depth and the number of values of a document, in which aliases multiply values."""
    values, rest = 0, [(document, 0)]
    while rest and values <= _MOST_YAML_VALUES:
        value, depth = rest.pop()
        if depth > _MOST_YAML_LEVELS:
            raise _nesting_error(where)
        if isinstance(value, int) and value.bit_length() > _MOST_NUMBER_BITS:
            # Python cannot print this number.
            raise UserError("a number has too many digits", where)
        if isinstance(value, dict | list | set | tuple):
            inner = value.values() if isinstance(value, dict) else value
            rest += [(each, depth + 1) for each in inner]
            values += len(value)
    if rest:
        raise UserError(f"the file has more than {_MOST_YAML_VALUES} values", where)


# Settings of pydantic: an unknown key is an error (closed), and the text "3" is not a number
# (strict).
PYDANTIC_SETTINGS = ConfigDict(extra="forbid", strict=True)
# Kind of an error of pydantic -> the name of the expected type in JSON and YAML.
EXPECTED_TYPES = {
    "string_type": "string",
    "int_type": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "list_type": "array",
    "dict_type": "object",
    "model_attributes_type": "object",
    "none_required": "null",
}


@cache
def _pydantic_adapter(document_type: Any) -> TypeAdapter[Any]:
    """Return the checker for documents of a type, with `PYDANTIC_SETTINGS` also for inner types."""
    return TypeAdapter(with_config(PYDANTIC_SETTINGS)(document_type))


class _JsonSchemaMaker(GenerateJsonSchema):
    """Makes JSON schemas that include the meanings of inherited keys, which pydantic omits."""

    def typed_dict_schema(self, schema: TypedDictSchema) -> JsonSchemaValue:
        """Return the JSON schema of a TypedDict."""
        found, document_type = super().typed_dict_schema(schema), cast(Any, schema["cls"])
        for key, meaning in _inherited_meanings(document_type).items():
            found["properties"][key].setdefault("description", meaning)
        return found


@cache
def _inherited_meanings(document_type: Any) -> dict[str, str]:
    """Return key -> meaning, for the keys that a type inherits."""
    bases = filter(is_typeddict, get_original_bases(document_type))
    return {
        key: own["description"]
        for base in bases
        for key, own in json_schema(base)["properties"].items()
        if "description" in own
    }


def json_schema(document_type: Any) -> dict[str, Any]:
    """Return the JSON schema of a document of a type, with meanings of keys, for editors."""
    # Only the schema needs the docstrings of keys, and reading docstrings takes pydantic some time.
    settings = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    adapter = TypeAdapter(with_config(settings)(document_type))
    return adapter.json_schema(schema_generator=_JsonSchemaMaker)


def check_document(document: Any, document_type: Any, where: str) -> None:
    """Check a document against its type.

    `document_type` is a TypedDict of this package; `where` names the document in error messages.

    Raises:
        UserError: the document does not match its type; the error names the key and what is
            allowed.
    """
    try:
        _pydantic_adapter(document_type).validate_python(document)
    except ValidationError as error:
        raise _user_error(error.errors(include_url=False), document, document_type, where) from None


def _user_error(
    errors: Sequence[ErrorDetails], document: Any, document_type: Any, where: str
) -> UserError:
    """Return the error at the deepest place, which belongs to the best fitting alternative."""
    places = [_path_in_document(error, document) for error in errors]
    deepest = max(map(len, places))
    inner = [(e, p) for e, p in zip(errors, places, strict=True) if len(p) == deepest]
    # A misspelt key gives two errors: the unknown key, and the missing correct key. The error about
    # the unknown key helps the user more.
    _, path = min(inner, key=lambda one: one[0]["type"] != "extra_forbidden")
    here = [error for error, place in inner if place == path]
    first = next((error for error in here if error["type"] not in EXPECTED_TYPES), here[0])
    kind, given, context = first["type"], first["input"], first.get("ctx", {})
    place = f"{where}, {_path_as_text(path)}"
    match kind:
        case "extra_forbidden" | "invalid_key":
            known = _known_keys(document_type, document, path[:-1])
            what, remedy = f"unknown key {path[-1]!r}", suggest_allowed_names(str(path[-1]), known)
            return UserError(what, f"{where}, {_path_as_text(path[:-1])}", remedy)
        case "missing":
            return UserError(
                f"the key {path[-1]!r} is missing", f"{where}, {_path_as_text(path[:-1])}"
            )
        case "union_tag_not_found":
            return UserError(f"the key {context['discriminator']} is missing", place)
        case "union_tag_invalid":
            key, value = context["discriminator"].strip("'"), context["tag"]
            remedy = suggest_allowed_names(
                str(value), _values_of_expectation(context["expected_tags"])
            )
            return UserError(f"the value {value!r} is not allowed", f"{place}.{key}", remedy)
        case "literal_error":
            remedy = suggest_allowed_names(str(given), _values_of_expectation(context["expected"]))
            return UserError(f"the value {given!r} is not allowed", place, remedy)
        case "string_pattern_mismatch":
            return UserError(f"{given!r} does not match {context['pattern']!r}", place)
        case "too_short" | "string_too_short":
            remedy = f"the least length is {context['min_length']}"
            return UserError(f"{given!r} is too short", place, remedy)
        case "too_long" | "string_too_long":
            remedy = f"the greatest length is {context['max_length']}"
            return UserError(f"{given!r} is too long", place, remedy)
        case _ if kind in EXPECTED_TYPES:
            wanted = (EXPECTED_TYPES[e["type"]] for e in here if e["type"] in EXPECTED_TYPES)
            listed = " or ".join(dict.fromkeys(wanted))
            return UserError(f"the value {given!r} is not of type {listed}", place)
    said = first["msg"].removeprefix("Input should ")
    if said == first["msg"]:
        return UserError(said, place)
    return UserError(f"the value {given!r} is not allowed", place, f"it should {said}")


def _path_as_text(path: Sequence[int | str]) -> str:
    return ".".join(map(str, path)) or "the document"


def _values_of_expectation(expected: str) -> list[str]:
    """Return the values in a text of pydantic such as "'a', 'b' or 'c'"."""
    return expected.replace(" or ", ", ").replace("'", "").split(", ")


def _path_in_document(error: ErrorDetails, document: Any) -> tuple[int | str, ...]:
    """Return the path of an error in the document, without pydantic's names of alternatives."""
    path: list[int | str] = []
    value: Any = document
    for step in error["loc"]:
        keys = range(len(value)) if isinstance(value, list) else value
        if isinstance(value, dict | list) and step in keys:
            path.append(step)
            value = cast(dict[int | str, Any], value)[step]
    return (*path, error["loc"][-1]) if error["type"] == "missing" else tuple(path)


def _known_keys(document_type: Any, document: Any, path: Sequence[int | str]) -> list[str]:
    """Return the keys that the mapping at a path of a document may have."""
    found = [*_types_of_annotation(document_type)]
    for step in path:
        document = document[step]
        found = [
            leaf
            for annotation in found
            for inner in _types_below(annotation, step)
            for leaf in _types_of_annotation(inner)
        ]
    mappings = [leaf for leaf in found if is_typeddict(leaf)]
    # If a mapping can have several types, the key `kind` in it says which type it has.
    kinds = [get_args(get_type_hints(one).get("kind")) for one in mappings]
    of_kind = zip(mappings, kinds, strict=True)
    meant = [one for one, own in of_kind if document.get("kind") in own] or mappings
    return sorted({key for one in meant for key in one.__annotations__})


def _types_below(annotation: Any, step: int | str) -> Iterator[Any]:
    if is_typeddict(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        yield from [hints[str(step)]] if step in hints else []
    elif get_origin(annotation) in (dict, list):
        yield get_args(annotation)[-1]


def _types_of_annotation(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value with a given annotation may have."""
    origin = get_origin(annotation)
    if origin in (Annotated, NotRequired, Required):
        yield from _types_of_annotation(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _types_of_annotation(one)
    elif origin is not Literal:
        yield annotation


NAME_PATTERN = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
# The text that names an endpoint of a load in the same point, such as ``storage.initiator``.
EndpointReference = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.(initiator|target|buffers)$")]
Text = Annotated[str, MinLen(1)]
Texts = Annotated[list[Text], MinLen(1)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Gt(0), Lt(1)]
Count = Annotated[int, Ge(1)]
Index = Annotated[int, Ge(0)]
Value = str | float | bool | None

Element = TypeVar("Element")


def _tag_of_list_or_single(value: object) -> str:
    return "list" if isinstance(value, list) else "single"


# A list; a single element is accepted instead of a list with one element.
OneOrSeveral = Annotated[
    Annotated[Element, Tag("single")] | Annotated[list[Element], MinLen(1), Tag("list")],
    Discriminator(_tag_of_list_or_single),
]


def _check_no_duplicates(values: list[Element]) -> list[Element]:
    if twice := [value for number, value in enumerate(values) if value in values[:number]]:
        raise PydanticCustomError(
            "twice", "{value} is in the list twice", {"value": repr(twice[0])}
        )
    return values


# A check that no element occurs twice in a list.
NO_DUPLICATES = AfterValidator(_check_no_duplicates)


def needs_exactly_one_key_of(*keys: str) -> AfterValidator:
    """Return a check that a mapping has exactly one of some keys."""

    def check_exactly_one_key(document: Mapping[str, Any]) -> Mapping[str, Any]:
        if sum(key in document for key in keys) != 1:
            wanted = {"keys": ", ".join(keys)}
            raise PydanticCustomError("keys", "exactly one of these keys is needed: {keys}", wanted)
        return document

    return AfterValidator(check_exactly_one_key)


def key_requires_other_key(key: str, other: str) -> AfterValidator:
    """Return a check that a mapping with a key has another key too."""

    def check_other_key(document: Mapping[str, Any]) -> Mapping[str, Any]:
        if key in document and other not in document:
            names = {"key": repr(key), "other": repr(other)}
            raise PydanticCustomError("needs", "the key {key} needs the key {other}", names)
        return document

    return AfterValidator(check_other_key)

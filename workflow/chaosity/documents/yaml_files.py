"""Read YAML files of others: limits of length, depth and digits, and errors in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from chaosity.errors import UserError

# The longest YAML file that is read, and the largest number of values in it. An alias counts as
# what it stands for. The longest file of the project has 10 kB.
_MOST_YAML_CHARACTERS = 2**20
_MOST_YAML_VALUES = 100_000
_DEEPEST_YAML = 100
_LONGEST_NUMBER_BITS = 1024
# libyaml allows any depth, and crashes beyond some 30,000 levels. With fewer signs of nesting than
# this, a text needs no look at its depth before it is loaded.
_HARMLESS_YAML_SIGNS = 5000
# libyaml's parser is nine times as fast as Python's, and every command reads some 50 files.
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
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-01
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", error)
        raise UserError(f"the file is not YAML: {problem}", place) from error


def _too_deep(where: str) -> UserError:
    return UserError(f"the file has more than {_DEEPEST_YAML} levels of nesting", where)


def _check_yaml_text(text: str, where: str) -> None:
    """Check that a text is not too long, and not so deep that its parser crashes."""
    if len(text) > _MOST_YAML_CHARACTERS:
        raise UserError(f"the file has more than {_MOST_YAML_CHARACTERS} characters", where)
    # Each level of nesting has one of these signs.
    if sum(map(text.count, "[{-?:")) < _HARMLESS_YAML_SIGNS:
        return
    depth = 0
    for event in yaml.parse(text, YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST_YAML:
            raise _too_deep(where)


def _check_yaml_document(document: Any, where: str) -> None:
    """Check depth and number of values; aliases can multiply values without an end."""
    values, rest = 0, [(document, 0)]
    while rest and values <= _MOST_YAML_VALUES:
        value, depth = rest.pop()
        if depth > _DEEPEST_YAML:
            raise _too_deep(where)
        if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER_BITS:
            raise UserError("a number has too many digits", where)  # Python cannot even print it
        if isinstance(value, dict | list | set | tuple):
            inner = value.values() if isinstance(value, dict) else value
            rest += [(each, depth + 1) for each in inner]
            values += len(value)
    if rest:
        raise UserError(f"the file has more than {_MOST_YAML_VALUES} values", where)

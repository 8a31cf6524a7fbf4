"""Write sentences from the templates in ``templates/texts``.

A macro of a ``.j2`` file gives one sentence, several sentences, or a part that several sentences
contain. A ``.yaml`` file contains texts with names, which can be templates. Templates format
numbers with functions of `chaosity.units`, by the names of these functions in `chaosity.units`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from chaosity import units
from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import ROOT
from chaosity.place_names import place_in_words, places_in_words

TEMPLATES = ROOT / "templates"
# The functions of `chaosity.units` that templates can call.
FORMATS = {
    name: getattr(units, name)
    for name in dir(units)
    if name.startswith("format_") or name in ("choose_scale", "group_thousands", "metric_in_words")
} | {
    "and_list": units.join_with_and,
    "place_in_words": place_in_words,
    "places_in_words": places_in_words,
}
# White space that becomes a single space. Thin spaces and no-break spaces stay, since they are
# parts of numbers.
_WHITE_SPACE, _SPACES = re.compile(r"[ \n]+"), re.compile(" +")
_LINE_BETWEEN, _SPACE_BEFORE_MARK = (
    re.compile("^--$", re.MULTILINE),
    re.compile(r" (?=[,;.:)](?: |$))"),
)


@cache
def template_environment(
    folder: Path,
    extensions: tuple[str, ...] = (),
    finalize: Callable[[Any], Any] | None = None,
    *,
    keep_trailing_newline: bool = False,
    autoescape: bool = False,
) -> Environment:
    """Return the jinja2 environment of the templates in a folder, with the functions of `FORMATS`.

    The result is cached, so each template is compiled only once. All arguments except `folder` are
    passed to jinja2's environment.
    """
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=extensions,
        finalize=finalize,
        keep_trailing_newline=keep_trailing_newline,
        autoescape=autoescape,
    )
    environment.globals |= FORMATS
    return environment


def _texts_environment() -> Environment:
    return template_environment(TEMPLATES / "texts")


@cache
def _template_of_text(text: str) -> Template:
    return _texts_environment().from_string(text)


def text_of_macro(template: str, macro: str, **values: object) -> str:
    """Return the text of a macro in ``templates/texts/TEMPLATE.j2``, without line breaks.

    Raises:
        jinja2.UndefinedError: the macro needs a value that `values` lacks.
    """
    return _WHITE_SPACE.sub(" ", _macro_text(template, macro, **values)).strip(" ")


def sentences_of_macro(template: str, macro: str, **values: object) -> list[str]:
    """Return the texts of a macro, which lines "--" separate, without spaces before punctuation.

    Raises:
        jinja2.UndefinedError: the macro needs a value that `values` lacks.
    """
    parts = _LINE_BETWEEN.split(_macro_text(template, macro, **values))
    texts = (_WHITE_SPACE.sub(" ", part).strip(" ") for part in parts)
    return [_SPACE_BEFORE_MARK.sub("", text) for text in texts if text]


def _macro_text(template: str, macro: str, **values: object) -> str:
    return str(getattr(_texts_environment().get_template(f"{template}.j2").module, macro)(**values))


@cache
def texts_of_yaml_file(name: str) -> dict[str, Any]:
    """Return the texts in ``templates/texts/NAME.yaml``."""
    texts: dict[str, Any] = read_yaml(TEMPLATES / "texts" / f"{name}.yaml")
    return texts


def fill_text_template(template: str, **values: object) -> str:
    """Return the text of a template from a YAML file; the text can contain line breaks.

    Raises:
        jinja2.UndefinedError: the template needs a value that `values` lacks.
    """
    text = _template_of_text(template).render(**values)
    return _SPACES.sub(" ", text).strip(" \n")

"""The JSON schemas of files that others read: records, and the placements for schedulers."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from chaosity.documents.shipped_documents import ROOT


@cache
def schema_validator(name: str) -> Draft202012Validator:
    """Return the validator of ``workflow/schemas/NAME.schema.yaml``."""
    text = (ROOT / f"workflow/schemas/{name}.schema.yaml").read_text()
    return Draft202012Validator(yaml.safe_load(text))


def schema_errors(document: Any, name: str) -> list[str]:
    """Return where a document does not match a schema."""
    return [error.message for error in schema_validator(name).iter_errors(document)]

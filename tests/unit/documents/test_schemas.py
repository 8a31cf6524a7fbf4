"""The JSON schemas that ``chaosity schema`` prints and docs/reference shows."""

import json

import pytest

from chaosity.cli.campaign import TYPES
from machines import run_chaosity


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_each_key_has_a_meaning(kind: str) -> None:
    """A key without a meaning has an empty cell in the reference, and no help in an editor."""
    schema = json.loads(run_chaosity("schema", kind))
    missing = [
        f"{part['title']}.{key}"
        for part in (schema, *schema.get("$defs", {}).values())
        for key, own in part.get("properties", {}).items()
        if "description" not in own and "$ref" not in own
    ]
    assert not missing

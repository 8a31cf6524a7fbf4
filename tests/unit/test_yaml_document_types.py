"""The types of the YAML documents have the keys of their schemas, required and optional alike."""

from __future__ import annotations

import pytest
import yaml

from chaosity import yaml_document_types as types
from chaosity.checked_yaml_files import SCHEMAS

TYPES = {
    "config": types.Config,
    "benchmark": types.BenchmarkDocument,
    "experiment": types.ExperimentDocument,
    "counters": types.CounterEventsDocument,
    "published": types.PublishedForm,
    "host": types.HostVariables,
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_the_keys_of_its_schema(name):
    schema = yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text())
    annotations = TYPES[name].__annotations__
    assert set(annotations) == set(schema["properties"])
    if name != "host":  # all of its keys are optional
        required = {key for key, kind in annotations.items() if "NotRequired" not in str(kind)}
        assert required == set(schema["required"])

"""The command `chaosity schema`."""

from __future__ import annotations

import json

import click

# Kind of a document -> module of `chaosity.documents` and type.
TYPES = {
    "benchmark": ("benchmarks", "BenchmarkDocument"),
    "config": ("config", "Config"),
    "counters": ("counters", "CounterEventsDocument"),
    "experiment": ("experiments", "ExperimentDocument"),
    "host": ("inventory", "HostVariables"),
    "processors": ("published", "ProcessorsDocument"),
    "published": ("published", "PublishedForm"),
    "simulated_machine": ("machines", "MachineFile"),
}


@click.command("schema")
@click.argument("kind", type=click.Choice(sorted(TYPES)))
def schema_command(kind: str) -> None:
    """Print the JSON schema of a kind of YAML document: each key, its type and its meaning.

    Editors with support for YAML complete and check keys with it. The schema of the kind host is
    that of the variables of a host in the inventory that begin with chaosity_.
    """
    from importlib import import_module

    from chaosity.documents.check_document import json_schema

    module, name = TYPES[kind]
    document_type = getattr(import_module(f"chaosity.documents.{module}"), name)
    click.echo(json.dumps(json_schema(document_type), indent=2))

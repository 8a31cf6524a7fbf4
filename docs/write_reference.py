"""Write docs/reference from what it describes: commands, types, experiment and benchmark files.

`make docs` runs this file; a test compares the pages with what it would write.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from chaosity.cli import chaosity
from chaosity.cli.weights import placement_argument_parser
from chaosity.documents.benchmarks import BenchmarkDocument
from chaosity.documents.checked_yaml import json_schema, read_yaml
from chaosity.documents.config import Config, read_config
from chaosity.documents.experiments import ExperimentDocument
from chaosity.documents.inventory import HostVariables
from chaosity.documents.machines import MachineFile
from chaosity.documents.shipped_documents import (
    BENCHMARKS_FOLDER,
    DEFAULT_CONFIG_FILE,
    EXPERIMENTS_FOLDER,
    ROOT,
    load_benchmark,
    load_experiment,
    yaml_file_names,
)
from chaosity.result_folders import FILES_OF_A_CONFIGURATION, FILES_OF_ALL_HOSTS
from chaosity.store.tidy_table_parquet import COLUMN_TYPES_WITH_MEANINGS

REFERENCE = ROOT / "docs" / "reference"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a line break or a bar within a cell does not end it."""
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    lines = (titles, ["---"] * len(titles), *cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _link(path: Path, text: str) -> str:
    return f"[{text}](../../{path.relative_to(ROOT)})"


def experiments_page() -> str:
    """Return the page of all experiments, with the default ones first."""
    default = read_config()["experiments"]
    others = [name for name in yaml_file_names(EXPERIMENTS_FOLDER) if name not in default]

    def rows(names: Iterable[str]) -> str:
        cells = (
            (
                _link(EXPERIMENTS_FOLDER / f"{name}.yaml", f"`{name}`"),
                load_experiment(name)["question"],
            )
            for name in names
        )
        return table(("experiment", "question"), cells)

    return f"""# Experiments

An experiment is a file of `workflow/experiments`. The key `experiments` of the
[config](../../config/config.yaml) selects which ones a run measures.

## Measured by default

{rows(default)}
By default a run takes only some levels of some factors (`levels` in the config), so that the run
stays short. `snakemake --config levels=null` takes all levels. Huge pages of 2 MiB and 1 GiB are
measured if the host has reserved them (`playbooks/configure.yml`). Otherwise the plan says that
huge pages are left out.

## Measured when selected

These experiments are slow, need several nodes, or measure a subset of another experiment. Select
them with `snakemake --config 'experiments=[numa_runtime]'`.

{rows(others)}
- `interference_writes` DESTROYS the data of the drives that the inventory names.
- `program_placement` measures a program of your own.
- Placements with measured weights need the results of a first run. Run
  `snakemake --config 'experiments=[memory_bandwidth,contended_paths,page_placement]'` twice; the
  plan says what the second run adds.
- Without a GPU, PoCL uses the processor as the OpenCL device.
"""


def benchmarks_page() -> str:
    """Return the page of all benchmarks by category."""
    chosen = read_config()["benchmarks"]
    rows = []
    for name in yaml_file_names(BENCHMARKS_FOLDER):
        benchmark = load_benchmark(name)
        categories = (benchmark["category"], *benchmark.get("other_categories", ()))
        listed = ", ".join(f"`{each}`" for each in categories)
        default = "yes" if name in chosen.values() else ""
        link = _link(BENCHMARKS_FOLDER / f"{name}.yaml", f"`{name}`")
        metrics = ", ".join(f"`{metric}`" for metric in benchmark["metrics"])
        rows.append((listed, link, benchmark["summary"], metrics, default))
    titles = ("category", "benchmark", "what it runs", "metrics", "default")
    return f"""# Benchmarks

A benchmark is a file of `templates/benchmarks`: a program, its command lines, and how its output is
read. The key `benchmarks` of the [config](../../config/config.yaml) selects one for each category,
for example `snakemake --config 'benchmarks={{memory_bandwidth: likwid_bench}}'`.

{table(titles, sorted(rows))}"""


# Command -> an example that runs.
EXAMPLES = {
    "advise": "chaosity advise results/node01/nps4 --cores 8 --memory 40GiB",
    "anomalies": "chaosity anomalies results/node01/nps4",
    "check": "chaosity check results/node01/nps4 --dry-run",
    "compare": "chaosity compare results/node01/nps4 results/node01/nps1",
    "explain": "chaosity explain results/node01/nps4 memory=node0+node1+triad",
    "export json": "chaosity export json results/node01/nps4",
    "export weights": "chaosity export weights results/node01/nps4",
    "fit": "chaosity fit results/node01/nps4 --output my_server.yaml",
    "plan": "chaosity plan --topology templates/machines/topologies/epyc_7413_nps4.xml",
    "predict": (
        "chaosity predict results/node01/nps4 --with memory_bandwidth/memory=node0+node0+triad"
        " --with memory_bandwidth/memory=node1+node0+triad"
    ),
    "profile collect": "chaosity profile collect results --database profiles.duckdb",
    "profile query": "chaosity profile query --database profiles.duckdb",
    "report": "chaosity report results/node01/nps4/plan.json --output report.html",
    "schema": "chaosity schema experiment",
    "show": "chaosity show results/node01/nps4 --intervals",
    "simulate": "chaosity simulate --inventory inventories/other --config maps.yaml",
    "topology": "chaosity topology templates/machines/topologies/epyc_7413_nps4.xml",
    "weights": "chaosity weights results/node01/nps4 --workers 0,1",
}
# Commands that the workflow calls, and nobody types.
OF_THE_WORKFLOW = ("discover", "next-round", "overview")


def _leaf_commands(
    group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        inner = click.Context(command, context, name, help_option_names=["-h", "--help"])
        inner.max_content_width = inner.terminal_width = 78
        if isinstance(command, click.Group):
            yield from (
                (f"{name} {below}", *rest) for below, *rest in _leaf_commands(command, inner)
            )
        else:
            yield name, command, inner


def commands_page() -> str:
    """Return the page of all commands: the help of each, and an example."""
    top = click.Context(chaosity, info_name="chaosity")
    parts = []
    for name, command, context in _leaf_commands(chaosity, top):
        text = command.get_help(context)
        if name == "place":
            parser = placement_argument_parser()
            parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=78)
            text = parser.format_help().rstrip()
        note = "The workflow calls this command.\n\n" if name in OF_THE_WORKFLOW else ""
        example = f"\n```sh\n{EXAMPLES[name]}\n```\n" if name in EXAMPLES else ""
        parts.append(f"## chaosity {name}\n\n{note}```text\n{text}\n```\n{example}")
    return f"""# Commands

Each command prints its text with `--help`. `results/HOST` is enough if the host has one
configuration. An error is one sentence, and the exit status is 2 then. `make` alone lists the
targets of the project: set up, measure, report, test.

{chr(10).join(parts)}"""


def _type_in_words(schema: Mapping[str, Any]) -> str:
    """Return the type of a key in words: values, or type with its limits."""
    if "anyOf" in schema or "oneOf" in schema:
        inner = schema.get("anyOf") or schema["oneOf"]
        if {one.get("type") for one in inner} == {"string", "number", "boolean", "null"}:
            return "value"
        types = dict.fromkeys(_type_in_words(one) for one in inner)
        return ("; or " if "," in "".join(types) else " or ").join(types)
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any value")
    words = {"array": "list", "object": "mapping", "string": "text"}.get(kind, kind)
    if kind == "array" and "items" in schema:
        words = f"list of {_type_in_words(schema['items'])}"
    values = schema.get("additionalProperties") or next(
        iter(schema.get("patternProperties", {}).values()), None
    )
    if kind == "object" and isinstance(values, Mapping) and values:
        words = f"mapping to {_type_in_words(values)}"
    limits = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    return ", ".join(
        (words, *(f"{text} {schema[k]:g}" for k, text in limits.items() if k in schema))
    )


def _keys(schema: Mapping[str, Any], default: Mapping[str, Any] | None = None) -> str:
    """Return a table of the keys of a type, with their defaults or whether they are needed."""
    rows = []
    for key, one in schema.get("properties", {}).items():
        last = "yes" if key in schema.get("required", ()) else ""
        if default is not None:
            last = f"`{json.dumps(default[key])}`" if key in default else ""
        rows.append((f"`{key}`", _type_in_words(one), last, one.get("description", "")))
    return table(("key", "type", "needed" if default is None else "default", "meaning"), rows)


def config_page() -> str:
    """Return the page of the config's keys."""
    schema, default = json_schema(Config), read_yaml(DEFAULT_CONFIG_FILE)
    # A default of several lines is in the file.
    short = {key: value for key, value in default.items() if len(json.dumps(value)) < 60}
    types = schema["$defs"]
    nested = {"slurm": "SlurmConfig", "working_set": "WorkingSetConfig"}
    parts = [f"## `{key}`\n\n{_keys(types[name], default[key])}" for key, name in nested.items()]
    rules = ((f"`{name}`", *map(str, rule.values())) for name, rule in default["stopping"].items())
    titles = ("category", *(f"`{key}`" for key in types["StoppingRule"]["properties"]))
    return f"""# Config

[config/config.yaml](../../config/config.yaml) has every key with its default. Change a key with
`snakemake --config replicates=5`, or in a file of your own that has only the changed keys:
`snakemake --configfile mine.yaml`. An unknown key is an error. `make run BUDGET=2h` sets `budget`.

{_keys(schema, short)}
{chr(10).join(parts)}
## `stopping`

{_keys(types["StoppingRule"])}
{table(titles, rules)}"""


def inventory_page() -> str:
    """Return the page of the variables that an inventory may have for a host."""
    parts = []
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role, [spec] = path.parts[-3], read_yaml(path)["argument_specs"].values()
        if not spec["options"]:
            continue
        defaults = ROOT / "roles" / role / "defaults" / "main.yml"
        values = read_yaml(defaults)
        rows = []
        for name, option in spec["options"].items():
            said = re.sub(r"C\(([^)]*)\)", r"`\1`", str(option.get("description", "")))
            kind = ", ".join(f"`{one}`" for one in option.get("choices", [])) or option["type"]
            value = json.dumps(values.get(name)) if name in values else ""
            rows.append((f"`{name}`", kind, f"`{value}`" if 0 < len(value) < 50 else "", said))
        link = _link(defaults, "defaults/main.yml")
        parts.append(
            f"## Role {role}\n\n{spec['short_description']}. {link} has an example of each.\n\n"
            + table(("variable", "type", "default", "meaning"), rows)
        )
    hosts = json_schema(HostVariables)
    files = hosts["$defs"]["StorageFilesReplacingDrives"]
    return f"""# Variables of an inventory

Facts about a host that discovery cannot find, and what the playbooks need to know. An unknown
variable that begins like one of these is an error.

## Host

{_keys(hosts)}
### `chaosity_storage_file`

{_keys(files)}
{chr(10).join(parts)}"""


def yaml_page() -> str:
    """Return the page of the keys of experiments, benchmarks and simulated machines."""
    parts = []
    kinds = {
        "Experiment": ExperimentDocument,
        "Benchmark": BenchmarkDocument,
        "Simulated machine": MachineFile,
    }
    for title, kind in kinds.items():
        schema = json_schema(kind)
        below = (
            f"### {title}: {name}\n\n{one.get('description', '')}\n\n{_keys(one)}"
            for name, one in sorted(schema["$defs"].items())
            if "properties" in one
        )
        parts.append(f"## {title}\n\n{schema.get('description', '')}\n\n{_keys(schema)}")
        parts += below
    return f"""# Keys of the YAML files

`chaosity schema experiment` prints the same as a JSON schema, with which editors complete and check
keys. A type in code, such as `LoadDesign`, has a table of its own below.

{chr(10).join(parts)}"""


def results_page() -> str:
    """Return the page that lists the files of a result folder and the table's columns."""
    above = ((f"`{name}`", what) for name, what in FILES_OF_ALL_HOSTS.items())
    files = ((f"`{name}`", what) for name, what in FILES_OF_A_CONFIGURATION.items())
    rows = ((f"`{name}`", kind, what) for name, (kind, what) in COLUMN_TYPES_WITH_MEANINGS.items())
    return f"""# Files and columns

## `results/`

{table(("file", "content"), above)}
## `results/HOST/CONFIGURATION/`

The configuration is the firmware mode, for example `nps4`. Everything but records, points, plan,
rounds, components and checks is computed from them: delete it, and the next run makes it again.

{table(("file", "content"), files)}
## Columns of the tidy table

`measurements.parquet` has a row for each point, replicate, load and metric. The name of a metric
ends in its unit (`bandwidth_bytes_per_second`); GB is 10^9 bytes, GiB is 2^30.
`history.parquet` has three more columns: `era`, the number of the period between two changes;
`components`, when the state of each component began; `asked`, a fingerprint of the request.

{table(("column", "type", "meaning"), rows)}"""


PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks_page,
    "commands.md": commands_page,
    "config.md": config_page,
    "experiments.md": experiments_page,
    "inventory.md": inventory_page,
    "results.md": results_page,
    "yaml-files.md": yaml_page,
}
NOTE = "\n<!-- Written by `make docs`; do not edit. -->\n"


def written_pages() -> dict[Path, str]:
    """Return path -> text of each page of the reference."""
    return {REFERENCE / name: page().rstrip() + "\n" + NOTE for name, page in PAGES.items()}


if __name__ == "__main__":
    for path, text in written_pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

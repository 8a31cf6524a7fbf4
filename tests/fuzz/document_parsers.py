"""Parsers of YAML documents, of the inventory and of Slurm's answers."""

from __future__ import annotations

import functools
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from chaosity import checked_yaml_files
from chaosity.benchmarks import counter_events
from chaosity.campaign.kept_page_weights import HostPageWeights
from chaosity.checked_yaml_files import ROOT, load_benchmark, load_experiment, read_config
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.hosts.ansible_inventory import read_inventory
from chaosity.simulation.machine_description import read_machine_description
from chaosity.slurm.job_watch_and_queue_cost import (
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
    parse_slurm_jobs_of_run,
)
from chaosity.slurm.slurm_commands import parse_slurm_nodes, reasons_of_unusable_nodes
from chaosity.store.read_published_csv import read_published_csv
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.topology_discovery import discover_topology
from chaosity.transport.runner_command import runner_command_line, ssh_transport
from fuzz.mutations import (
    DEEP,
    ODD_TEXTS,
    change_document,
    change_text,
    generated_json,
    mutated,
    mutated_json,
)
from fuzz.watched_parser import Parser

# Every text that libyaml composes is held in memory several times.
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(12)
)
ODD_YAML = (
    *(
        "[" * DEEP,
        "- " * DEEP + "x",
        "{a: " * 10_000,
        _BOMB,
        "&a [*a]",
        "a: &a {b: *a}",
        "? [x]\n: 1",
    ),
    *("a: !!python/object/apply:os.system ['id']", "!!python/name:os.system", "a: !!binary 'x'"),
    *(
        "a: 2026-13-01",
        "a: 1:2",
        "a: .nan",
        "- !!set {x}",
        "%YAML 9.9\n--- x",
        "",
        "\0",
        "\ufeffa: 1",
    ),
    *("{{ 7 * 7 }}", "a: b: c", "a:\t- x", "<<: [1, 2]", "a: *b", "---\na: 1\n---\nb: 2", "1: 2"),
)


def mutated_yaml(paths: list[Path]) -> st.SearchStrategy[str]:
    """Return YAML texts: shipped files with changed values or lines, and odd documents."""
    texts = [path.read_text() for path in paths]
    documents = [yaml.safe_load(text) for text in texts]
    return st.one_of(
        *[mutated(documents, change_document, 3).map(_yaml_text)] * 3,
        mutated(texts, change_text),
        generated_json().map(_yaml_text),
        st.sampled_from(ODD_YAML),
    )


def _yaml_text(document: Any) -> str:
    return json.dumps(document, default=str)  # JSON is YAML, and is written much faster


def _folder_reader(
    attribute: str, key: str, load: Callable[[str], object]
) -> Callable[[str, Path], None]:
    """Return a parser of a document that is looked up by name in one of the project's folders."""

    def parse(text: str, folder: Path) -> None:
        _default_config(), _planned_host()  # before the project's folder is replaced
        name = "fuzzed"
        try:
            given = yaml.safe_load(text) if len(text) < 10_000 else None
            name = str(given[key]) if isinstance(given, dict) and given.get(key) else name
        except Exception:  # the parser itself must refuse the text
            name = "fuzzed"
        if not name.replace("_", "").isalnum() or len(name) > 80:
            name = "fuzzed"
        _write(folder, f"{name}.yaml", text)
        former = getattr(checked_yaml_files, attribute)
        setattr(checked_yaml_files, attribute, folder)
        try:
            load(name)
        finally:
            setattr(checked_yaml_files, attribute, former)

    return parse


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


@functools.cache
def _planned_host() -> PlannedHost:
    topology = discover_topology(str(ROOT / "machines" / "topologies" / "epyc_7413_nps4.xml"))
    variables: Any = {"chaosity_simulated": "x"}
    return PlannedHost("host", configuration_name(topology), topology, variables)


def _plan_experiment(name: str) -> None:
    load_experiment(name)
    config: Any = {**_default_config(), "experiments": [name], "replicates": 1, "levels": {}}
    plan_host(_planned_host(), config)


@functools.cache
def _default_config() -> Any:
    return read_config()


def _parse_config(text: str, folder: Path) -> None:
    read_config(_write(folder, "config.yaml", text))


@functools.cache
def _machine_topology(name: str) -> Any:
    return discover_topology(str(ROOT / "machines" / "topologies" / f"{name}.xml"))


def _parse_machine(text: str, folder: Path) -> None:
    path = _write(folder, "epyc_7413_nps4.yaml", text)
    _write(folder, "epyc_7413.yaml", (ROOT / "machines" / "epyc_7413.yaml").read_text())
    read_machine_description(path, _machine_topology("epyc_7413_nps4"))


def _parse_counters(text: str, folder: Path) -> None:
    _write(folder, "amd_zen.yaml", text)
    former = counter_events.COUNTERS
    counter_events.COUNTERS = folder
    counter_events.read_counter_files.cache_clear()
    host: Any = {"cpu_vendor": "AuthenticAMD", "cpu_family": "25", "cpu_model_number": "1"}
    try:
        names = {name for file in counter_events.read_counter_files() for name in file["events"]}
        counter_events.find_counter_events(sorted(map(str, names)), host, "benchmark")
    finally:
        counter_events.COUNTERS = former
        counter_events.read_counter_files.cache_clear()


def _parse_form(text: str, folder: Path) -> None:
    from chaosity.store import read_published_csv as module

    _write(folder, "numa_bench.yaml", text)
    sample = ROOT / "tests" / "data" / "command_files" / "sweep.csv"
    csv = _write(folder, "sweep.csv", sample.read_text())
    former, module.PUBLISHED = module.PUBLISHED, folder
    try:
        read_published_csv(csv, "numa_bench", "theirs")
    finally:
        module.PUBLISHED = former


INVENTORY = {
    "_meta": {
        "hostvars": {
            "node01": {
                "ansible_host": "10.0.0.1",
                "ansible_port": 22,
                "ansible_user": "{{ lookup('env', 'USER') }}",
                "ansible_ssh_common_args": "-o ProxyJump=gate",
                "runner_directory": "{{ inventory_dir }}/x",
                "chaosity_destructive_drives": ["S64GNE0R"],
                "chaosity_storage_file": {"directory": "/var/tmp", "bytes": 2**30},
            },
            "node02": {"ansible_connection": "local", "chaosity_topology": "live"},
        }
    },
    "all": {"children": ["ungrouped"]},
    "ungrouped": {"hosts": ["node01", "node02"]},
}
ODD_TEMPLATES = (
    *("{{ 10 ** 10 ** 10 }}", "{{ 'a' * 10 ** 12 }}", "{{ range(10 ** 9) | list }}", "{{ 1 / 0 }}"),
    *(
        "{{ ''.__class__.__mro__ }}",
        "{{ self }}",
        "{{ x }}",
        "{{ (",
        "{% for i in range(9999) %}{{ i }}{% endfor %}",
    ),
    *(
        "{{ inventory_hostname | attr('format') }}",
        "{{ '%999999999d' % 1 }}",
        "{{ ['a'] | join(1) }}",
    ),
    *(
        "{{ lookup('env') }}",
        "{{ lookup('pipe', 'id') }}",
        "{{ '{{ x }}' }}",
        "{{ inventory_dir + 1 }}",
    ),
    *("{{ 'a' | center(10 ** 10) }}", "{{ '{:>9999999999}'.format(1) }}", "'unclosed"),
)


def change_inventory(generator: random.Random, document: Any) -> Any:
    """Change the inventory, sometimes a template in it."""
    if isinstance(document, dict) and generator.randrange(3) == 0:
        try:
            variables = document["_meta"]["hostvars"]["node01"]
            name = generator.choice(sorted(variables))
            value = generator.choice((*ODD_TEMPLATES, *ODD_TEXTS))
            hosts = {**document["_meta"]["hostvars"], "node01": {**variables, name: value}}
        except (KeyError, TypeError, IndexError):
            return change_document(generator, document)
        return {**document, "_meta": {"hostvars": hosts}}
    return change_document(generator, document)


def _parse_inventory(text: str, folder: Path) -> None:
    """Read what a program called ansible-inventory prints."""
    _write(folder, "answer", text)
    program = _write(folder, "ansible-inventory", f"#!/bin/sh\nexec /bin/cat {folder}/answer\n")
    program.chmod(0o755)
    inventory, python = _write(folder, "hosts.yml", ""), sys.executable
    sys.executable = str(folder / "python")  # Ansible's programs are looked for beside it
    temporary, tempfile.tempdir = tempfile.tempdir, str(folder)  # for sockets of OpenSSH
    try:
        for host in read_inventory(str(inventory)):
            if host.local_or_ssh == "ssh":
                command = runner_command_line(ssh_transport(host.name, host.connection_variables))
                assert all(isinstance(word, str) and "\0" not in word for word in command)
            assert isinstance(host.topology_source, str)
    finally:
        tempfile.tempdir = temporary
        sys.executable = python


NODES = (
    "NodeName=node01 Arch=x86_64 CPUAlloc=0 CPUEfctv=62 CPUTot=64 RealMemory=515000"
    " MemSpecLimit=1000 State=IDLE+DRAIN* Reason=bad DIMM [root@2026-11-20T10:00:00] Comment=x\n"
    "NodeName=node02 CPUTot=8 State=DOWN\n"
)
JOBS = (
    "12|COMPLETED|node01|1700000000|1700000010|1700000100|None|chaosity-1|/work\n"
    "13|PENDING|node01|1700000000|N/A|N/A|Resources|chaosity-2|/work\n"
)
SLURM_CONFIG = (
    "MinJobAge               = 300 sec\nAccountingStorageType   = accounting_storage/none\n"
)


def _parse_slurm(text: str, _folder: Path) -> None:
    reasons_of_unusable_nodes(parse_slurm_nodes(text).values())
    jobs = parse_slurm_jobs_of_run(text, {"node01"}, "chaosity-", "/work", 0.0)
    describe_queue_and_job_times(jobs.values(), {"node01": (3, 20.0)})
    check_finished_jobs_stay_visible(text)


def _parse_weights(text: str, folder: Path) -> None:
    _write(folder, "weights.json", text)
    weights = HostPageWeights(folder, recalculate=False)
    for name in ("canonical", "contended"):
        weights(name, [0, 1])
    weights.write_known_weights()


def parsers() -> list[Parser]:
    """Return the parsers of this family."""

    def files(folder: str) -> list[Path]:
        return sorted((ROOT / folder).glob("*.yaml"))

    shares = {"0-1": {"shares": {"0": 0.5, "1": 0.5}, "source": "x", "since": "2026"}}
    inventories = mutated([INVENTORY], change_inventory).map(json.dumps)
    configs = [path for path in files("workflow/config") if path.stem == "config"]
    machine = [ROOT / "machines" / "epyc_7413_nps4.yaml"]
    return [
        Parser(
            "experiment YAML",
            "an experiment of a user, planned for a server",
            lambda: mutated_yaml(files("workflow/experiments")),
            _folder_reader("EXPERIMENTS", "experiment", _plan_experiment),
            examples=60,
        ),
        Parser(
            "benchmark YAML",
            "a benchmark of a user",
            lambda: mutated_yaml(files("templates/benchmarks")),
            _folder_reader("BENCHMARKS", "benchmark", load_benchmark),
            examples=80,
        ),
        Parser(
            "config YAML",
            "the config of a user",
            lambda: mutated_yaml([*configs, ROOT / "tests/data/command_files/short.yaml"]),
            _parse_config,
            examples=60,
        ),
        Parser(
            "machine YAML",
            "the description of a simulated machine",
            lambda: mutated_yaml(machine),
            _parse_machine,
            examples=60,
        ),
        Parser(
            "counters YAML",
            "events of a processor family",
            lambda: mutated_yaml(files("templates/counters")),
            _parse_counters,
            examples=60,
        ),
        Parser(
            "form YAML",
            "the meaning of the columns of a published CSV file",
            lambda: mutated_yaml([ROOT / "templates/published/numa_bench.yaml"]),
            _parse_form,
            examples=60,
        ),
        Parser(
            "inventory",
            "what ansible-inventory prints, and the variables of hosts",
            lambda: st.one_of(inventories, inventories, mutated_json([INVENTORY])),
            _parse_inventory,
            examples=80,
        ),
        Parser(
            "Slurm",
            "answers of scontrol show node, squeue and scontrol show config",
            lambda: mutated([NODES, JOBS, SLURM_CONFIG], change_text),
            _parse_slurm,
            examples=150,
        ),
        Parser(
            "weights.json",
            "the kept page weights of a host",
            lambda: mutated_json([{"weights": {"canonical": shares}}]),
            _parse_weights,
            examples=80,
        ),
    ]

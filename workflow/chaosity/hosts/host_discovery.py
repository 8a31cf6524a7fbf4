"""Discover hosts and write the results; a file with unchanged content keeps its time stamp.

``<results>/<host>/<configuration>/`` gets ``topology.xml``, ``topology.json`` and
``components/*.json``. ``<results>/<host>/`` gets the host's description of itself, and
``host.json`` with the configuration of the last discovery and the command that reaches the host.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, TypeVar, cast

from chaosity.components import (
    make_component_documents,
    write_changed_components,
)
from chaosity.design.benchmark_templates import load_benchmark_of_each_category
from chaosity.design.host_plan import PlannedHost
from chaosity.design.point_expansion import json_fingerprint
from chaosity.documents.config import Config
from chaosity.documents.machines import MachineDescription
from chaosity.documents.shipped_documents import path_as_given_or_in_repository
from chaosity.errors import UserError, suggest_allowed_names
from chaosity.hosts.ansible_inventory import (
    CONFIGURATION_PLACEHOLDER,
    InventoryHost,
    read_inventory,
)
from chaosity.hosts.runner_command import (
    LOCAL,
    SIMULATED,
    SLURM,
    SSH,
    SSH_STATUS_OF_FAILED_CONNECTION,
    TransportCommands,
    connection_error_cause,
    runner_command_line,
    ssh_command_with_password,
    ssh_transport,
)
from chaosity.records.record_files import (
    read_regular_file,
    write_atomically,
    write_if_changed,
)
from chaosity.records.record_format import RequiredProgram
from chaosity.result_folders import (
    read_skipped_host,
    remove_skipped_host_note,
    write_skipped_host_note,
)
from chaosity.runner.build_zipapp import zipapp_sha256 as runner_digest
from chaosity.runner.describe_host import ToolFacts
from chaosity.simulation.machine_description import (
    MACHINE_FILE,
    firmware_topology,
    read_machine_description,
)
from chaosity.slurm import (
    list_slurm_nodes,
    slurm_node_name,
    srun_command_for_host_description,
)
from chaosity.topology.topology_discovery import discover_topology_with_xml
from chaosity.topology.topology_model import configuration_name, read_topology, topology_to_json
from chaosity.topology.topology_sources import LIVE_SOURCE, read_description

T = TypeVar("T")
_DESCRIPTION_FILE = "description.json"
# Longest time in which a host describes itself. lstopo may take two minutes on a host with a slow
# driver; the versions of the tools take seconds.
_MOST_SECONDS_FOR_DESCRIPTION = 180
# Number of hosts that are discovered at the same time. For each of these hosts, one process waits
# on the controller.
_MOST_HOSTS_AT_ONCE = 16
_REMEDY_TO_PROVISION = "run ansible-playbook provision.yml"
_REMEDY_FOR_SUDO = (
    "let sudo start the runner without a password, or remove ansible_become; "
    "docs/reference/hosts.md has the line for sudoers"
)


class FactsForDiscovery(TypedDict):
    """Facts in a host's description that discovery uses, see `runner.describe_host`."""

    boot_id: str | None
    tools: list[ToolFacts]
    runner_sha256: str | None


def parse_version_number(text: str) -> tuple[int, ...]:
    """Return the first version number in a text, e.g. (3, 33) from ``fio-3.33``, or else ()."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def checked_tool_versions_and_hashes(
    needs: Sequence[RequiredProgram], seen: Sequence[ToolFacts]
) -> dict[str, str]:
    """Return tool -> text with the tool's version and hash on a host.

    `needs` are the required tools; `seen` has the facts of the same tools on the host, in the same
    order.

    Raises:
        UserError: a tool is missing or too old; the error says how to install it.
    """
    versions = {}
    for need, tool in zip(needs, seen, strict=True):
        name, version = need["program"], tool["version"] or ""
        if tool["path"] is None and need.get("optional"):
            continue  # only the points of this tool fail, and give the reason in their records
        if tool["path"] is None:
            raise UserError("the program is not installed", name, need["install"])
        oldest = need.get("at_least")
        if oldest and parse_version_number(version) < parse_version_number(oldest):
            wrong = f"version {version or 'unknown'} is too old; {oldest} or later is needed"
            raise UserError(wrong, name, need["install"])
        versions[name] = f"{version} (sha256 {(tool['sha256'] or '')[:16]})".strip()
    return versions


def _slurm_transport(host: InventoryHost, config: Config) -> TransportCommands:
    """Return the commands that start the runner on a node of Slurm, as a job in the queue."""
    # The job runs the programs of this installation, which is on a file system that the node can
    # read.
    name, nodes = slurm_node_name(host.name, host.variables), list_slurm_nodes()
    where = f"host {host.name}"
    if name not in nodes:
        remedy = f"name it in chaosity_slurm_node; {suggest_allowed_names(name, nodes)}"
        raise UserError(f"Slurm has no node {name!r}", where, remedy)
    if trouble := nodes[name].unusable_reason:
        remedy = "return the node to service or wait, then run snakemake again"
        raise UserError(trouble, where, remedy)
    return TransportCommands(
        kind=SLURM,
        way=srun_command_for_host_description(nodes[name], config["slurm"]),
        runner=["chaosity-run"],
    )


def _choose_transport(host: InventoryHost, config: Config) -> TransportCommands:
    """Return the commands that reach a host and start the runner there."""
    if config["transport"] == SLURM:
        return _slurm_transport(host, config)
    if host.local_or_ssh == SSH:
        return ssh_transport(host.name, host.connection_variables)
    return TransportCommands(kind=LOCAL, way=[], runner=["chaosity-run"])


def _request_description(
    host: InventoryHost,
    transport: TransportCommands,
    needs: Sequence[RequiredProgram],
    path: Path,
    queue_seconds: float = 0,
) -> FactsForDiscovery:
    """Ask a host to describe itself, save its answer to `path`, and return the facts."""
    command, environment = runner_command_line(transport, "--describe"), None
    if password := host.connection_variables.get("ansible_password"):
        command, environment = ssh_command_with_password(command, str(password))
    where = f"host {host.name}"
    seconds = _MOST_SECONDS_FOR_DESCRIPTION + queue_seconds
    asked = json.dumps({"needs": list(needs)}).encode()
    try:
        answer = subprocess.run(
            command, input=asked, capture_output=True, env=environment, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the host did not describe itself within {seconds} s", where) from None
    errors = answer.stderr.decode(errors="replace")
    if transport["kind"] == SSH and answer.returncode == SSH_STATUS_OF_FAILED_CONNECTION:
        raise UserError(f"the host cannot be reached: {connection_error_cause(errors)}", where)
    if answer.returncode:
        last = (errors.strip().splitlines() or ["the runner printed no error"])[-1]
        text = f"the host cannot be described: {last.removeprefix('chaosity-run: ')}"
        if re.match(r"sudo: |Sorry, user", last):
            raise UserError(text, where, _REMEDY_FOR_SUDO)
        # The last error of the runner may already name a remedy after a semicolon.
        raise UserError(text, where, None if "; " in last else _REMEDY_TO_PROVISION)
    write_atomically(path, answer.stdout)
    facts = cast(FactsForDiscovery, read_description(path))
    if missing := FactsForDiscovery.__annotations__.keys() - facts.keys():
        raise UserError(f"the description lacks {min(missing)!r}", where, _REMEDY_TO_PROVISION)
    if facts["runner_sha256"] and facts["runner_sha256"] != runner_digest():
        raise UserError("the runner on the host has another version", where, _REMEDY_TO_PROVISION)
    return facts


def _ask_live_host(
    host: InventoryHost, config: Config, path: Path, needs: Sequence[RequiredProgram]
) -> tuple[TransportCommands, FactsForDiscovery, dict[str, str]]:
    """Ask a host to describe itself, write the answer to `path`, and check the host's tools.

    Returns the commands that reach the host, its facts, and tool -> version and hash.
    """
    transport = _choose_transport(host, config)
    queue_seconds = 60 * config["slurm"]["wait_minutes"] if transport["kind"] == SLURM else 0
    facts = _request_description(host, transport, needs, path, queue_seconds)
    return transport, facts, checked_tool_versions_and_hashes(needs, facts["tools"])


def find_unready_hosts(
    hosts: Sequence[InventoryHost], config: Config, results: Path
) -> dict[str, UserError]:
    """Return host -> error for each host that lacks something; hosts are asked before a reboot.

    All hosts are asked at the same time. The descriptions of the hosts are written below `results`,
    and ``left_out.json`` of a host that lacks something has the reason. Simulated hosts are not
    asked. Nodes of Slurm are not asked either, because their answers would wait in the queue.
    """
    benchmarks = load_benchmark_of_each_category(config).values()
    needs = [benchmark.document["needs"] for benchmark in benchmarks]
    asked = []
    if config["transport"] != SLURM:
        asked = [host for host in hosts if host.topology_source == LIVE_SOURCE]

    def ask_host(host: InventoryHost) -> object:
        return _ask_live_host(host, config, results / host.name / _DESCRIPTION_FILE, needs)

    return _do_for_hosts(ask_host, asked, results)[1]


def _do_for_hosts(
    work: Callable[[InventoryHost], T], hosts: Sequence[InventoryHost], results: Path
) -> tuple[list[T], dict[str, UserError]]:
    """Call `work` for several hosts at the same time.

    Returns the results of the calls, and host -> error for each host whose call failed; these hosts
    are skipped.
    """

    def work_or_skip(host: InventoryHost) -> tuple[list[T], dict[str, UserError]]:
        try:
            return [work(host)], {}
        except UserError as error:
            write_skipped_host_note(results / host.name, host.name, str(error))
            return [], {host.name: error}

    with ThreadPoolExecutor(max_workers=_MOST_HOSTS_AT_ONCE) as pool:
        found = list(pool.map(work_or_skip, hosts))
    errors = {name: error for _, skipped in found for name, error in skipped.items()}
    return [outcome for outcomes, _ in found for outcome in outcomes], errors


def _discover_host(host: InventoryHost, config: Config, results: Path) -> PlannedHost:
    """Discover a host and write its topology, its components and ``host.json`` below `results`."""
    documents = [each.document for each in load_benchmark_of_each_category(config).values()]
    needs = [document["needs"] for document in documents]
    tools: dict[str, str] = {}
    live_facts: dict[str, object] = {}
    source, file = host.topology_source, host.variables.get("chaosity_simulated")
    if file and source == LIVE_SOURCE:
        remedy = "set chaosity_topology to an hwloc XML file of the machine"
        raise UserError("a simulated host needs a topology file", f"host {host.name}", remedy)
    expected = config["expected_configuration"]
    if CONFIGURATION_PLACEHOLDER in source:
        if not expected:
            remedy = "name a configuration in expected_configuration, or several in configurations"
            raise UserError(
                "the topology file depends on the configuration, but no configuration is given",
                f"host {host.name}",
                remedy,
            )
        source = source.replace(CONFIGURATION_PLACEHOLDER, expected)
    if source == LIVE_SOURCE:
        path = results / host.name / _DESCRIPTION_FILE
        transport, facts, tools = _ask_live_host(host, config, path, needs)
        source = str(path)
        live_facts = {"transport": transport, "boot_id": facts["boot_id"]}
    topology, xml = discover_topology_with_xml(source)
    machine: MachineDescription | None = None
    if file:
        machine = read_machine_description(path_as_given_or_in_repository(file), topology)
        topology = firmware_topology(machine, topology, host.name, datetime.now(UTC).date())
        # The description of a simulated machine is part of its system component, so a change of the
        # description makes the workflow measure again.
        programs = [document.get("simulation") for document in documents]
        tools = {"simulated machine": json_fingerprint([machine, programs])}
        live_facts = {"transport": {"kind": SIMULATED, "way": [], "runner": []}}
    configuration = configuration_name(topology)
    if expected and source != host.topology_source and configuration != expected:
        wrong = f"the host is in configuration {configuration}, not {expected}"
        remedy = "check the host's firmware settings and its topology.xml"
        raise UserError(wrong, f"host {host.name}", remedy)
    local = needs_no_connection(host, config)
    planned = PlannedHost(host.name, configuration, topology, host.variables, local)
    folder = results / host.name / configuration
    write_if_changed(folder / "topology.xml", xml)
    write_if_changed(folder / "topology.json", _json_text(topology_to_json(topology)))
    if machine:
        write_if_changed(folder / MACHINE_FILE, _json_text(machine))
    drives = {
        drive["component"]: drive for drive in planned.drives_to_measure(Path(config["results"]))
    }
    write_changed_components(
        folder / "components", make_component_documents(topology, tools, drives)
    )
    known = {"host": host.name, "configuration": configuration, "source": source, **live_facts}
    if group := host.variables.get("chaosity_equal_hosts"):
        known["equal_hosts"] = group
    write_if_changed(results / host.name / "host.json", _json_text(known))
    remove_skipped_host_note(results / host.name)
    return planned


def _json_text(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"


def needs_no_connection(host: InventoryHost, config: Config) -> bool:
    """Return whether a host needs neither SSH nor Slurm.

    A host needs no connection if it is this machine, or if it is known only from a file with its
    topology.
    """
    live, local = host.topology_source == LIVE_SOURCE, config["transport"] != SLURM
    return not live or (local and host.local_or_ssh == LOCAL)


def discover_hosts(
    config: Config,
    inventory: Sequence[InventoryHost] | None = None,
    results: Path | None = None,
) -> tuple[list[PlannedHost], dict[str, UserError]]:
    """Discover hosts; return the discovered hosts, and host -> error for each skipped host.

    `inventory` are the hosts to discover; by default the hosts that the config names. The files of
    discovery are written below `results`; by default the folder that the config names. Several
    hosts are discovered at the same time. ``left_out.json`` of a skipped host also has the error.

    Raises:
        UserError: the inventory is wrong, or no host could be discovered.
    """
    below = results or Path(config["results"])
    inventory = inventory or read_inventory(config["inventory"], config["hosts"])
    hosts, errors = _do_for_hosts(
        lambda host: _discover_host(host, config, below), inventory, below
    )
    if not hosts:
        *others, last = errors.values()
        for error in others:
            print(f"chaosity: {error}", file=sys.stderr)
        raise last
    return hosts, errors


def read_discovered_hosts(config: Config) -> list[PlannedHost]:
    """Return the hosts as the last discovery found them, without a new discovery.

    Raises:
        UserError: a host has not been discovered yet.
    """
    results = Path(config["results"])
    hosts = []
    for host in read_inventory(config["inventory"], config["hosts"]):
        if read_skipped_host(results / host.name):
            continue
        path = results / host.name / "host.json"
        if not path.exists():
            raise UserError("the host has not been discovered yet", host.name, "run snakemake")
        known = json.loads(read_regular_file(path))
        hosts.append(read_discovered_host(host, known["configuration"], config))
    return hosts


def read_discovered_host(host: InventoryHost, configuration: str, config: Config) -> PlannedHost:
    """Return a host as its last discovery in this configuration found it.

    Raises:
        UserError: the host was never discovered in this configuration.
    """
    path = Path(config["results"]) / host.name / configuration / "topology.json"
    topology = read_topology(path)
    if topology is None:
        raise UserError("the topology of the host does not exist", str(path), "run snakemake")
    local = needs_no_connection(host, config)
    return PlannedHost(host.name, configuration, topology, host.variables, local)

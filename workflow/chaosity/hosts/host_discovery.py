"""Discovers hosts and writes down what they are, touching only files whose content changed.

``<results>/<host>/<configuration>/topology.xml`` and ``topology.json``, ``components/*.json``;
``<results>/<host>/host.json``, which names the configuration that was found last and how the host
is reached, and beside it the description that the host gave of itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chaosity.benchmarks import open_benchmarks
from chaosity.components import component_documents, write_components
from chaosity.config import suggest_allowed
from chaosity.design import PlannedHost
from chaosity.errors import UserError
from chaosity.hosts.inventory import InventoryHost, read_inventory
from chaosity.records import write_bytes_atomically, write_if_changed
from chaosity.runner.build_zipapp import zipapp_digest as runner_digest
from chaosity.runner.describe_host import FACTS_MEMBER
from chaosity.slurm import list_slurm_nodes, slurm_node_name, srun_command
from chaosity.topology import (
    LIVE,
    configuration_name,
    discover_with_xml,
    read_topology,
    topology_to_json,
)
from chaosity.transport import LOCAL, SLURM, SSH, Transport
from chaosity.transport.host_command import (
    CONNECTION_FAILED,
    connection_error_cause,
    ssh_transport,
    with_password,
)
from chaosity.transport.skipped_hosts import read_skipped_host, readmit_host, skip_host

# The raw description of a live host, as it came.
DESCRIPTION = "description.tar.gz"
# lstopo may take two minutes on a host with a slow driver; the tools' versions take seconds.
DESCRIBE_SECONDS = 180
# Hosts that are asked at the same time: each waits mostly, and needs a process here.
AT_ONCE = 16
PROVISION = "run ansible-playbook provision.yml"


def version_numbers(text: str) -> tuple[int, ...]:
    """The first dotted number in a text, e.g. (3, 33) from ``fio-3.33``."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def tool_versions(
    needs: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Version and hash of each tool on a host.

    Args:
        needs: the tools as the benchmark files name them.
        seen: what the host says of each, in the same order (see runner/describe.py).

    Raises:
        UserError: one is missing or too old; says how to get it.
    """
    found = {}
    for need, one in zip(needs, seen, strict=True):
        name, said = need["program"], one["version"] or ""
        if one["path"] is None and need.get("optional"):
            continue  # costs its own points alone, which say so
        if one["path"] is None:
            raise UserError("is not installed", name, need["install"])
        oldest = need.get("at_least")
        if oldest and version_numbers(said) < version_numbers(oldest):
            wrong = f"version {said or 'unknown'} is too old, {oldest} is needed"
            raise UserError(wrong, name, need["install"])
        found[name] = f"{said} (sha256 {one['sha256'][:16]})".strip()
    return found


def needs_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools that the chosen benchmarks need."""
    return [benchmark.document["needs"] for benchmark in open_benchmarks(config).values()]


def slurm_transport(host: InventoryHost, config: Mapping[str, Any]) -> Transport:
    """How the runner on a node of Slurm's is reached: as a job of its own, through the queue.

    The programs are those of this installation, on a file system that the node shares.

    Raises:
        UserError: Slurm has no such node, or no job can start on it now; says why.
    """
    name, nodes = slurm_node_name(host.name, host.variables), list_slurm_nodes()
    where = f"host {host.name}"
    if name not in nodes:
        remedy = f"name it in chaosity_slurm_node; {suggest_allowed(name, nodes)}"
        raise UserError(f"Slurm has no node {name!r}", where, remedy)
    if nodes[name].trouble:
        raise UserError(nodes[name].trouble, where, "its points are left for later")
    return Transport(SLURM, tuple(srun_command(nodes[name], config)), ("chaosity-run",))


def transport_of(host: InventoryHost, config: Mapping[str, Any]) -> Transport:
    """How the runner on a host is reached.

    Raises:
        UserError: the inventory names a way that the workflow has not.
    """
    if config["transport"] == SLURM:
        return slurm_transport(host, config)
    if host.connection == SSH:
        return ssh_transport(host.name, host.reach)
    return Transport(LOCAL, (), ("chaosity-run",))


def described(
    host: InventoryHost,
    transport: Transport,
    needs: Sequence[Mapping[str, Any]],
    path: Path,
    patience: float = 0,
) -> dict[str, Any]:
    """Have a host describe itself, and keep what it says.

    Args:
        host: the host as the inventory has it.
        transport: how its runner is reached.
        needs: the tools to look for.
        path: where the description is kept.
        patience: seconds that the host may keep us waiting beforehand.

    Returns:
        The facts that hwloc and /sys do not tell (see runner/describe.py).

    Raises:
        UserError: the host cannot be reached, or its runner is missing, another or failed.
    """
    command, environment = transport.command("--describe"), None
    if password := host.reach.get("ansible_password"):
        command, environment = with_password(command, str(password))
    where = f"host {host.name}"
    seconds = DESCRIBE_SECONDS + patience
    try:
        answer = subprocess.run(
            command,
            input=json.dumps({"needs": list(needs)}).encode(),
            capture_output=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"gave no description within {seconds} s", where) from None
    said = answer.stderr.decode(errors="replace")
    if transport.kind == SSH and answer.returncode == CONNECTION_FAILED:
        raise UserError(f"cannot be reached: {connection_error_cause(said)}", where)
    last = (said.strip().splitlines() or ["it said nothing"])[-1].removeprefix("chaosity-run: ")
    if answer.returncode:
        raise UserError(f"cannot be described: {last}", where, PROVISION)
    write_bytes_atomically(path, answer.stdout)
    with tarfile.open(path) as archive:
        member = archive.extractfile(FACTS_MEMBER)
        assert member is not None
        facts = json.load(member)
    if facts["runner_sha256"] and facts["runner_sha256"] != runner_digest():
        raise UserError("its runner is not of this version", where, PROVISION)
    return facts


def discover_host(host: InventoryHost, config: Mapping[str, Any]) -> PlannedHost:
    """Discover one host and write down what it is.

    Args:
        host: the host as the inventory has it.
        config: the checked config.

    Raises:
        UserError: it cannot be discovered; says why.
    """
    results = Path(config["results"])
    needs, tools, note = needs_of(config), {}, {}
    source = host.topology_source
    if source == LIVE:
        transport = transport_of(host, config)
        source = str(results / host.name / DESCRIPTION)
        queue = 60 * config["slurm"]["wait_minutes"] if transport.kind == SLURM else 0
        facts = described(host, transport, needs, Path(source), queue)
        tools = tool_versions(needs, facts["tools"])
        note = {"transport": transport.to_json(), "boot_id": facts["boot_id"]}
    topology, xml = discover_with_xml(source)
    configuration = configuration_name(topology)
    expected = config["expected_configuration"]
    if expected and source != host.topology_source and configuration != expected:
        raise UserError(
            f"is in configuration {configuration}, not {expected}",
            f"host {host.name}",
            "look at its firmware's settings and at its topology.xml",
        )
    found = PlannedHost(host.name, configuration, topology, host.variables, is_local(host, config))
    folder = results / host.name / configuration
    write_if_changed(folder / "topology.xml", xml)
    write_if_changed(
        folder / "topology.json", json.dumps(topology_to_json(topology), indent=1) + "\n"
    )
    documents = component_documents(topology, tools=tools)
    for drive in found.drives(results):
        documents.setdefault(drive.component, drive.to_json())
    write_components(folder / "components", documents)
    told = {"host": host.name, "configuration": configuration, "source": source, **note}
    write_if_changed(results / host.name / "host.json", json.dumps(told, indent=1) + "\n")
    readmit_host(results / host.name)
    return found


def is_local(host: InventoryHost, config: Mapping[str, Any]) -> bool:
    """Whether a host is this machine, as far as the inventory and the config say."""
    if host.topology_source != LIVE:
        return True
    return config["transport"] != SLURM and host.connection == LOCAL


def discover_hosts(config: Mapping[str, Any]) -> tuple[list[PlannedHost], list[UserError]]:
    """Discover all hosts that the config wants, several at a time.

    Args:
        config: the checked config.

    Returns:
        The hosts, and for each one that is left out the reason, which is also kept in
        ``left_out.json``.

    Raises:
        UserError: the inventory is wrong, or not one host could be discovered.
    """
    results = Path(config["results"])

    def one(host: InventoryHost) -> PlannedHost | UserError:
        try:
            return discover_host(host, config)
        except UserError as error:
            skip_host(results / host.name, host.name, str(error))
            return error

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = list(pool.map(one, read_inventory(config["inventory"], config["hosts"])))
    hosts = [one for one in found if isinstance(one, PlannedHost)]
    errors = [one for one in found if isinstance(one, UserError)]
    if not hosts:
        for error in errors[:-1]:
            print(f"chaosity: {error}", file=sys.stderr)
        raise errors[-1]
    return hosts, errors


def read_discovered_hosts(config: Mapping[str, Any]) -> list[PlannedHost]:
    """The hosts as they were discovered last, for processes that must not discover anew.

    Raises:
        UserError: one has not been discovered yet.
    """
    results = Path(config["results"])
    found = []
    for host in read_inventory(config["inventory"], config["hosts"]):
        if read_skipped_host(results / host.name):
            continue
        path = results / host.name / "host.json"
        if not path.exists():
            raise UserError("has not been discovered yet", host.name, "run snakemake")
        configuration = json.loads(path.read_text())["configuration"]
        found.append(read_discovered_host(host, configuration, config))
    return found


def read_discovered_host(
    host: InventoryHost, configuration: str, config: Mapping[str, Any]
) -> PlannedHost:
    """A host as it was discovered when it was last in a configuration.

    Raises:
        UserError: it never was.
    """
    path = Path(config["results"]) / host.name / configuration / "topology.json"
    topology = read_topology(path)
    if topology is None:
        raise UserError("does not exist", str(path), "run snakemake")
    return PlannedHost(host.name, configuration, topology, host.variables, is_local(host, config))

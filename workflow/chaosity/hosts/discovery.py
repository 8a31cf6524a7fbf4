"""Discovers hosts and writes down what they are, touching only files whose content changed.

``<results>/<host>/<configuration>/topology.xml`` and ``topology.json``, ``components/*.json``, and
``<results>/<host>/host.json``, which names the configuration that was found last.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chaosity.benchmarks import open_benchmarks
from chaosity.components import component_documents, write_components
from chaosity.design import Host
from chaosity.errors import UserError
from chaosity.hosts.inventory import InventoryHost, read_inventory
from chaosity.records import rewrite
from chaosity.topology import LIVE, configuration_name, discover, topology_from_json, topology_xml


def version_numbers(text: str) -> tuple[int, ...]:
    """The first dotted number in a text, e.g. (3, 33) from ``fio-3.33``."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def tool_versions(needs: Sequence[Mapping[str, Any]], path: str | None = None) -> dict[str, str]:
    """Version and hash of each tool on this machine.

    Raises:
        UserError: one is missing or too old; says how to get it.
    """
    found = {}
    for need in needs:
        program = shutil.which(need["program"], path=path)
        if program is None:
            raise UserError("is not installed", need["program"], need["install"])
        said = ""
        if "version" in need:
            command = [program, *need["version"][1:]]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = (answer.stdout + answer.stderr).strip().splitlines()
            said = lines[0] if lines else ""
        oldest = need.get("at_least")
        if oldest and version_numbers(said) < version_numbers(oldest):
            wrong = f"version {said or 'unknown'} is too old, {oldest} is needed"
            raise UserError(wrong, need["program"], need["install"])
        digest = hashlib.sha256(Path(program).read_bytes()).hexdigest()[:16]
        found[need["program"]] = f"{said} (sha256 {digest})".strip()
    return found


def needs_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools that the chosen benchmarks need."""
    return [benchmark.document["needs"] for benchmark in open_benchmarks(config).values()]


def discover_host(host: InventoryHost, config: Mapping[str, Any], tools: Mapping[str, str]) -> Host:
    """Discover one host and write down what it is.

    Args:
        host: the host as the inventory has it.
        config: the checked config.
        tools: versions of the tools on it, part of its system component.
    """
    results = Path(config["results"])
    source = host.topology_source
    topology = discover(source)
    configuration = configuration_name(topology)
    found = Host(host.name, configuration, topology, host.variables)
    folder = results / host.name / configuration
    rewrite(folder / "topology.xml", topology_xml(source))
    rewrite(folder / "topology.json", json.dumps(topology.to_json(), indent=1) + "\n")
    documents = component_documents(topology, tools=tools)
    for drive in found.drives(results):
        documents.setdefault(drive.component, drive.to_json())
    write_components(folder / "components", documents)
    rewrite(
        results / host.name / "host.json",
        json.dumps({"host": host.name, "configuration": configuration, "source": source}) + "\n",
    )
    return found


def discover_hosts(config: Mapping[str, Any], path: str | None = None) -> list[Host]:
    """Discover all hosts that the config wants, several at a time.

    Args:
        config: the checked config.
        path: search path for the tools of live hosts.
    """
    hosts = read_inventory(config["inventory"], config["hosts"])
    live = any(host.topology_source == LIVE for host in hosts)
    tools = tool_versions(needs_of(config), path) if live else {}

    def one(host: InventoryHost) -> Host:
        return discover_host(host, config, tools if host.topology_source == LIVE else {})

    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(one, hosts))


def read_hosts(config: Mapping[str, Any]) -> list[Host]:
    """The hosts as they were discovered last, for processes that must not discover anew.

    Raises:
        UserError: one has not been discovered yet.
    """
    results = Path(config["results"])
    found = []
    for host in read_inventory(config["inventory"], config["hosts"]):
        path = results / host.name / "host.json"
        if not path.exists():
            raise UserError("has not been discovered yet", host.name, "run snakemake")
        configuration = json.loads(path.read_text())["configuration"]
        facts = json.loads((results / host.name / configuration / "topology.json").read_text())
        topology = topology_from_json(facts)
        found.append(Host(host.name, configuration, topology, host.variables))
    return found

"""Measure hosts in several configurations, such as the NPS modes of their firmware.

Each configuration of a host is measured by a separate run of the workflow, after the firmware was
set and the host has started again. A host is not rebooted into a configuration with complete
records.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from chaosity.campaign.kept_page_weights import HostPageWeights
from chaosity.checked_yaml_files import check_config
from chaosity.design.host_plan import plan_host
from chaosity.errors import UserError
from chaosity.hosts.ansible_inventory import CONFIGURATION, InventoryHost, read_inventory
from chaosity.hosts.host_discovery import read_discovered_host
from chaosity.records.atomic_writes_and_record_files import (
    is_measured,
    replicate_numbers,
    utc_now_text,
    write_atomically,
)
from chaosity.topology.topology_sources import LIVE
from chaosity.transport.runner_command import LOCAL


class ConfigurationCampaign:
    """The hosts that are measured in several configurations, and the records that are missing.

    Args:
        config: the merged config from Snakemake.

    Raises:
        UserError: config or inventory is wrong, or a host (or every host) cannot be rebooted.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = check_config(config)
        self.results = Path(self.config["results"])
        self.names = self.config["configurations"]
        found = read_inventory(self.config["inventory"], self.config["hosts"])
        self.hosts = {host.name: host for host in found if host.can_change_configuration}
        for host in found:
            if host.is_simulated and not host.can_change_configuration:
                what = "this host is simulated in a single configuration"
                remedy = f"write {CONFIGURATION} in the name of its topology file"
                raise UserError(what, f"host {host.name}", remedy)
            if host.topology_source == LIVE and host.local_or_ssh == LOCAL:
                what = "a reboot of this host into another configuration would end this run"
                remedy = "start the run on another machine, or list only other hosts in `hosts`"
                raise UserError(what, f"host {host.name}", remedy)
        if not self.hosts:
            what = "the inventory has no host that can be set to other configurations"
            remedy = "list a host without chaosity_topology, or leave `configurations` empty"
            raise UserError(what, f"inventory {self.config['inventory']}", remedy)

    def configuration_folder(self, host: str, configuration: str) -> Path:
        """Return the folder of a host's files for a configuration."""
        return self.results / host / configuration

    def finished_file(self, host: str, configuration: str) -> str:
        """Return the file that exists only after all points of a configuration were measured."""
        return str(self.configuration_folder(host, configuration) / "measured.txt")

    def previous_finished_file(self, host: str, configuration: str) -> list[str]:
        """Return the previous configuration's finished file; an empty list for the first one."""
        index = self.names.index(configuration)
        return [self.finished_file(host, self.names[index - 1])] if index else []

    def _count_missing(self, host: InventoryHost, configuration: str) -> int | None:
        """Return the number of missing or failed records; None before the first discovery."""
        folder = self.configuration_folder(host.name, configuration)
        if not (folder / "topology.json").exists():
            return None
        found = read_discovered_host(host, configuration, self.config)
        plan = plan_host(found, self.config, weights=HostPageWeights(folder))
        return sum(
            not is_measured(folder, point, replicate)
            for point in plan.points
            for replicate in replicate_numbers(point)
        )

    def write_configuration_files(self) -> None:
        """Write the config of each configuration's run, and files that say if records are missing.

        While records or the report are missing, ``wanted.json`` is written again, so that its new
        time makes Snakemake run the configuration. If none is missing, ``measured.txt`` is written.
        """
        for host, configuration in itertools.product(self.hosts, self.names):
            missing = self._count_missing(self.hosts[host], configuration)
            folder = self.configuration_folder(host, configuration)
            own = {
                **self.config,
                "hosts": [host],
                "configurations": [],
                "expected_configuration": configuration,
            }
            write_atomically(folder / "config.yaml", yaml.safe_dump(own, sort_keys=False))
            wanted = folder / "wanted.json"
            complete = missing == 0 and (folder / "report.html").exists()
            if not complete or not wanted.exists():
                note = {"asked_at": utc_now_text(), "records_missing": missing}
                write_atomically(wanted, json.dumps(note) + "\n")
            if complete:
                Path(self.finished_file(host, configuration)).touch()

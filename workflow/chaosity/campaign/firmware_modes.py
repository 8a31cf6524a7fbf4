"""Hosts taken through several configurations, such as the NPS modes of their firmware.

Each configuration of a host is a run of the workflow by itself, begun after the firmware was set
and the host came back. A configuration whose records are all there is not booted into again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from chaosity.campaign.measured_weights import MeasuredWeights
from chaosity.config import check_config
from chaosity.design import plan_host, replicate_numbers
from chaosity.errors import UserError
from chaosity.hosts import InventoryHost, read_discovered_host, read_inventory
from chaosity.records import VALID, load_record, utc_now, write_atomically
from chaosity.topology import LIVE
from chaosity.transport import LOCAL


class FirmwareModes:
    """Which hosts are taken through which configurations, and what is missing of each.

    Args:
        config: the merged config, as Snakemake has it.

    Raises:
        UserError: config or inventory is wrong, or a host cannot be rebooted from here.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = check_config(config)
        self.results = Path(self.config["results"])
        self.names: list[str] = self.config["configurations"]
        found = read_inventory(self.config["inventory"], self.config["hosts"])
        self._hosts = {host.name: host for host in found if host.topology_source == LIVE}
        for host in self._hosts.values():
            if host.connection == LOCAL:
                raise UserError(
                    "cannot be taken through configurations: its reboot would end this run",
                    f"host {host.name}",
                    "run this on another machine, or leave the host out by `hosts` in the config",
                )
        self._missing = {
            (host, name): self._count_missing(self._hosts[host], name)
            for host in self._hosts
            for name in self.names
        }

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts."""
        return list(self._hosts)

    def folder(self, host: str, configuration: str) -> Path:
        """Where a host's files for a configuration are."""
        return self.results / host / configuration

    def done(self, host: str, configuration: str) -> str:
        """The file that says that all of a configuration has been measured."""
        return str(self.folder(host, configuration) / "measured.txt")

    def before(self, host: str, configuration: str) -> list[str]:
        """The same of the configuration that a host is taken through before."""
        place = self.names.index(configuration)
        return [self.done(host, self.names[place - 1])] if place else []

    def _count_missing(self, host: InventoryHost, configuration: str) -> int | None:
        """Records that are missing or failed; None when the host was never seen like that."""
        if not (self.folder(host.name, configuration) / "topology.json").exists():
            return None
        weights = MeasuredWeights(self.folder(host.name, configuration))
        found = read_discovered_host(host, configuration, self.config)
        plan = plan_host(found, self.config, weights=weights)
        return sum(
            not self._measured(host.name, configuration, point, replicate)
            for point in plan.points
            for replicate in replicate_numbers(point)
        )

    def _measured(
        self, host: str, configuration: str, point: Mapping[str, Any], replicate: int
    ) -> bool:
        """Whether there is a good record of what the plan asks for."""
        place = self.folder(host, configuration) / point["experiment"] / point["point"]
        try:
            record = load_record(place / f"rep{replicate}.json")
        except ValueError:
            return False
        same = record["point"]["definition"] == point["definition"]
        return same and record["verdict"]["status"] == VALID

    def write(self) -> None:
        """Write for each configuration what its own run needs, and whether it is wanted.

        ``wanted.json`` is written anew, with the time, as long as something is missing, so that
        Snakemake takes the host through the configuration; where nothing is, ``measured.txt``
        stands.
        """
        for (host, configuration), missing in self._missing.items():
            folder = self.folder(host, configuration)
            own = {
                **self.config,
                "hosts": [host],
                "configurations": [],
                "expected_configuration": configuration,
            }
            write_atomically(folder / "config.yaml", yaml.safe_dump(own, sort_keys=False))
            wanted, done = folder / "wanted.json", Path(self.done(host, configuration))
            if missing != 0 or not wanted.exists():
                note = {"asked_at": utc_now(), "records_missing": missing}
                write_atomically(wanted, json.dumps(note) + "\n")
            if missing == 0:
                done.touch()

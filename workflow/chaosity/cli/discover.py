"""``chaosity discover``: look again at a host after it was booted into a configuration."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.cli.shared_options import CONFIG_OPTION


@click.command("discover")
@click.argument("host")
@click.argument("configuration")
@CONFIG_OPTION
def discover_host_command(host: str, configuration: str, config_file: Path) -> None:
    """Discover a HOST of the config's inventory, which has to be in CONFIGURATION.

    Writes topology and components into results/HOST/CONFIGURATION. The workflow starts this command
    after it booted the host.
    """
    from chaosity.campaign.firmware_modes import discover_in_mode
    from chaosity.documents.check_config import read_config

    discover_in_mode(read_config(config_file), host, configuration)

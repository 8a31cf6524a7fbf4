"""Serves Redfish for the lab's machines with the emulator sushy-tools."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import flask
from sushy_tools.emulator import main as emulator

from virtual_bmc import firmware_settings
from virtual_bmc.sushy_driver import LabDriver

MANUFACTURER = "AMD"
# The name under which the emulator has its registry; its settings page gives another name.
REGISTRY = "BiosAttributeRegistry.v1_0_0"


def serve_redfish(folder: Path, lab: Path, port: int) -> None:
    """Answer Redfish requests on the loopback address until the process is ended.

    Args:
        folder: the BMC's own folder, with its certificate and account.
        lab: folder with a folder for each machine.
        port: TCP port.
    """
    driver = LabDriver(lab, emulator.app.logger.error)
    # The emulator has no option for drivers other than its own.
    emulator.Application.systems = driver
    emulator.app.configure(
        extra_config={
            "SUSHY_EMULATOR_AUTH_FILE": str(folder / "htpasswd"),
            "SUSHY_EMULATOR_STATE_DIR": str(folder),
        }
    )
    emulator.app.after_request(lambda response: _complete_response(response, driver))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    emulator.app.run(host="127.0.0.1", port=port, ssl_context=context)


def _complete_response(response: flask.Response, driver: LabDriver) -> flask.Response:
    """Return a response with the machines' data in the emulator's fixed pages and errors."""
    if not response.is_json or (flask.request.method != "GET" and response.status_code < 400):
        return response
    page: dict[str, Any] = response.get_json()
    endpoint = flask.request.endpoint
    if "error" in page:
        page["error"]["@Message.ExtendedInfo"][0]["Message"] = page["error"]["message"]
    elif endpoint == "root_resource":
        page["Vendor"] = MANUFACTURER
    elif endpoint == "system_resource":
        page["Manufacturer"] = MANUFACTURER
    elif endpoint == "bios":
        page["AttributeRegistry"] = REGISTRY
    elif endpoint == "bios_settings":
        identity = (flask.request.view_args or {})["identity"]
        page["Attributes"] = firmware_settings.pending_settings(driver.folder(identity))
    elif endpoint == "bios_registry":
        page["RegistryEntries"] = {
            "Attributes": firmware_settings.attribute_registry(driver.folders())
        }
    response.set_data(json.dumps(page))
    return response

"""firmware.yml against a BMC that speaks Redfish, for machines that do not boot.

The host that is looked at is this machine, which has other nodes than it is asked for; what its BMC
tells and resets is a machine of a lab that is off. tests/lab has the change itself.
"""

from __future__ import annotations

import fcntl
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from inventories import THIS_MACHINE, write_inventory
from lab_bmc import MODES, Redfish, make_machine
from sshd import free_port

pytestmark = pytest.mark.thorough

play_firmware = functools.partial(playbooks.play, playbook="playbooks/firmware.yml")
WRONG_PASSWORD = "wrong-but-secret-too"
FROM_ENVIRONMENT = "secret-of-the-environment"
NPS = "NumaNodesPerSocket"
# Plays with processes and locks of their own: they do not find who works on this machine.
ALONE = [
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"),
    'mkdir -p /run/chaosity && mount -t tmpfs none /run/chaosity && exec "$@"',
    "sh",
]
IS_ROOT = os.geteuid() == 0
# Host by host: the machine that its BMC tells of, what its inventory says apart from the usual, and
# the sentence that has to come.
REFUSALS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no-consent": (
        "whole",
        {},
        f"set {NPS} from NPS1 to NPS4 and rebooted, which takes"
        " firmware_reboot_allowed: true. Nothing was set.",
    ),
    "password": (
        "whole",
        {"firmware_bmc_password": WRONG_PASSWORD},
        "firmware_bmc_password right?): HTTP Error 401",
    ),
    "environment": ("whole", {"firmware_bmc_password": None}, "HTTP Error 401"),
    "trust": (
        "whole",
        {"firmware_bmc_ca_path": "/etc/ssl/certs/ca-certificates.crt"},
        "(is its certificate, or that of its issuer, in firmware_bmc_ca_path?)",
    ),
    "silent": (
        "whole",
        {"firmware_bmc_address": f"127.0.0.1:{free_port()}"},
        "gives no answer, so nothing was changed",
    ),
    "no-account": (
        "whole",
        {"firmware_bmc_user": ""},
        "Its BMC needs firmware_bmc_address, firmware_bmc_user and",
    ),
    "no-system": (
        "whole",
        {"firmware_bmc_system": "other"},
        "has the systems narrow, strange, stuck, whole; name no-system's",
    ),
    "unknown": ("strange", {}, "these have similar names: SncMode. Give firmware_attribute and"),
    "value": (
        "whole",
        {"firmware_attribute": NPS, "firmware_value": "NPS8"},
        f"does not allow {NPS} to be NPS8; it allows NPS0, NPS1, NPS2, NPS4.",
    ),
    "refused": (
        "narrow",
        {"firmware_reboot_allowed": True, "firmware_busy_allowed": not IS_ROOT},
        f"refuses {NPS}=NPS4, so refused was not rebooted: HTTP Error 400",
    ),
    "lost": (
        "whole",
        {
            "firmware_reboot_allowed": True,
            "firmware_reboot_timeout": 1,
            "firmware_busy_allowed": not IS_ROOT,
        },
        f"lost did not come back within 1 s of its reset (it is still in the same boot);"
        f" {NPS} had been set to NPS4, from NPS1. The former value is stored in the BMC and takes"
        " effect at the next reboot",
    ),
    "stuck": (
        "stuck",
        {
            "firmware_reboot_allowed": True,
            "firmware_forced_reboot_allowed": True,
            "firmware_busy_allowed": True,
            "firmware_reboot_timeout": 8,
        },
        f"{NPS} had been set to NPS4, from NPS1. It was reset with the former value and still does"
        " not answer.",
    ),
    "mode": ("whole", {"firmware_mode": "nps9"}, "firmware_mode of mode is nps9; it has to be"),
    "one-package": (
        "whole",
        {"firmware_mode": "nps0", "firmware_reboot_allowed": True},
        "nps0 of one-package would be one node over several packages, but the host has one package",
    ),
    "maker": (
        "whole",
        {"firmware_vendor": "acme"},
        "firmware_vendor of maker is acme, which is not known",
    ),
    "half": ("whole", {"firmware_value": "NPS4"}, "give both, or neither"),
    "spelling": ("whole", {"firmware_mod": "nps1"}, "an unknown variable: firmware_mod."),
}
CONTENT: dict[str, tuple[str, dict[str, Any]]] = {
    "current": ("whole", {"firmware_mode": "nps1", "firmware_bmc_address": ""}),
    "unasked": ("whole", {"firmware_mode": ""}),
}


@pytest.fixture(scope="module")
def bmc(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redfish]:
    found = Redfish(root, tmp_path_factory.mktemp("redfish"))
    make_machine(found.lab, "whole", MODES, NPS)
    make_machine(found.lab, "narrow", {"nps1": 1, "nps2": 2}, NPS)
    make_machine(found.lab, "strange", {"snc2": 2}, "SncMode")
    make_machine(found.lab, "stuck", MODES, NPS)
    begun = found.bring("present")
    assert (begun.status, begun.count("changed")) == (0, 1), begun.said
    yield found
    ended = found.bring("absent")
    assert (ended.status, ended.count("changed")) == (0, 1), ended.said


def inventory(folder: Path, bmc: Redfish, hosts: dict[str, tuple[str, dict[str, Any]]]) -> Path:
    """Hosts that are this machine, with a lab's BMC; a variable that is None is left out."""
    usual = {**THIS_MACHINE, "firmware_mode": "nps4"}
    variables = {
        name: usual | bmc.variables(machine) | own for name, (machine, own) in hosts.items()
    }
    given = {
        name: {key: value for key, value in own.items() if value is not None}
        for name, own in variables.items()
    }
    return write_inventory(folder / "hosts.yml", given)


def test_what_is_refused_is_refused_by_name_and_other_hosts_go_on(
    root: Path, bmc: Redfish, tmp_path: Path
) -> None:
    """One run over all hosts, as talkative as it gets."""
    hosts = {name: (machine, own) for name, (machine, own, _) in REFUSALS.items()} | CONTENT
    path = inventory(tmp_path, bmc, hosts)
    environment = {"CHAOSITY_BMC_PASSWORD": FROM_ENVIRONMENT, "ANSIBLE_DISPLAY_OK_HOSTS": "1"}
    before = ALONE if IS_ROOT else None
    refused = play_firmware(root, "-i", path, "-vvv", before=before, environment=environment)
    refused.check_refused({host: [sentence] for host, (_, _, sentence) in REFUSALS.items()})
    assert refused.status != 0
    # A setting was taken and a reset asked for, of one host that does not come back twice.
    assert refused.count("changed") == 2 + 4, refused.said[-3000:]
    for secret in (bmc.password, WRONG_PASSWORD, FROM_ENVIRONMENT):
        assert secret not in refused.said
    assert bmc.password not in (bmc.folder / "log").read_text()
    # A module that is not piped is a file with all that it was given.
    assert "AnsiballZ_redfish" not in refused.said
    # Nothing waits in the BMC but what was consented to: a host that was lost boots with its former
    # value, whenever somebody switches it on.
    assert bmc.settings("narrow")["pending"] == {}
    assert bmc.settings("whole")["pending"] == bmc.settings("stuck")["pending"] == {NPS: "NPS1"}


@pytest.mark.skipif(not IS_ROOT, reason="only root gives a play processes of its own")
def test_a_host_on_which_somebody_works_is_not_rebooted(
    root: Path, bmc: Redfish, tmp_path: Path
) -> None:
    given = {"firmware_reboot_allowed": True, "firmware_busy_timeout": 1}
    path = inventory(tmp_path, bmc, {"busy": ("narrow", {**given, "firmware_mode": "nps2"})})
    lock = Path("/tmp/chaosity-measuring.lock")
    lock.touch()
    # It ends with the namespace of the play's processes.
    in_a_terminal = "script --quiet --command 'sleep 300' /dev/null < /dev/null > /dev/null &"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        before = [*ALONE, "sh", "-c", f'{in_a_terminal} sleep 1; exec "$@"', "sh"]
        outcome = play_firmware(root, "-i", path, before=before)
    assert outcome.status != 0
    assert outcome.says(
        "busy is not rebooted, since work runs there: a measurement holds"
        " /tmp/chaosity-measuring.lock; root works on pts/"
    ), outcome.said
    assert bmc.settings("narrow")["pending"] == {}


def test_a_trial_tells_what_would_happen(root: Path, bmc: Redfish, tmp_path: Path) -> None:
    named = {"firmware_attribute": "SncMode", "firmware_value": "SNC2"}
    other = {"firmware_mode": "nps2", "firmware_reboot_allowed": True}
    hosts = {"narrow": ("narrow", other), "strange": ("strange", named)}
    outcome = play_firmware(root, "-i", inventory(tmp_path, bmc, hosts), "--check")
    assert outcome.says(f"To show 2 it would be set {NPS} from NPS1 to NPS2 and rebooted, with"), (
        outcome.said
    )
    assert outcome.says("says that SncMode is SNC2 already, yet strange shows"), outcome.said
    assert bmc.settings("narrow")["pending"] == {}


def test_without_the_collection_it_says_what_is_missing(
    root: Path, bmc: Redfish, tmp_path: Path
) -> None:
    hosts = inventory(tmp_path, bmc, {"whole": ("whole", {})})
    environment = {"ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false", "HOME": str(tmp_path)}
    outcome = play_firmware(root, "-i", hosts, environment=environment)
    assert outcome.status != 0
    assert outcome.says("The Ansible collection community.general, whose modules speak Redfish")
    assert "Traceback" not in outcome.said


def test_a_bmc_keeps_its_secrets_and_its_port(root: Path, bmc: Redfish, tmp_path: Path) -> None:
    for name in ("password", "htpasswd", "key.pem"):
        assert stat.S_IMODE((bmc.folder / name).stat().st_mode) == 0o600
    before = bmc.password
    again = bmc.bring("present")
    assert (again.status, again.count("changed")) == (0, 0), again.said
    assert bmc.password == before
    second = Redfish(root, tmp_path)
    second.port = bmc.port
    outcome = second.bring("present")
    assert outcome.status != 0
    assert outcome.says(f"another program listens on port {bmc.port}"), outcome.said
    assert second.bring("absent").count("changed") == 0

"""Which setting and value the firmware role chooses from what a BMC says it has.

The names of makers whose BMCs nobody here has, as their users and manuals give them: that they are
right only such a BMC can tell, that they are picked out of what it lists is shown here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import playbooks
from inventories import write_inventory

DOMAINS = "NumaMemoryDomainsPerSocket"
# Host by host: the BMC's word for the maker, its settings, the values that its registry has (None:
# there is none), the mode, its resets; then what is chosen: maker, setting, value, graceful or not.
CASES: dict[str, tuple[tuple[str, dict[str, str], list[str] | None, str, list[str]], list[Any]]] = {
    "dell-amd": (
        ("Dell Inc.", {"NumaNodesPerSocket": "1"}, ["0", "1", "2", "4"], "nps4", []),
        ["dell", "NumaNodesPerSocket", "4", True],
    ),
    "dell-old": (
        ("Dell Inc.", {"SubNumaCluster": "Disabled"}, ["Enabled", "Disabled"], "snc2", []),
        ["dell", "SubNumaCluster", "Enabled", True],
    ),
    "hpe": (
        ("HPE", {DOMAINS: "Auto"}, None, "nps2", ["ForceRestart", "On"]),
        ["hpe", DOMAINS, "TwoMemoryDomainsPerSocket", False],
    ),
    "supermicro": (
        (
            "Supermicro",
            {"A": "", "NUMANodesPerSocket#703E": "Auto"},
            ["NPS1", "NPS4"],
            "nps4",
            ["GracefulRestart"],
        ),
        ["supermicro", "NUMANodesPerSocket#703E", "NPS4", True],
    ),
    "lenovo": (
        ("Lenovo", {"Processors_SNC": "Disabled"}, ["Disabled", "SNC2", "SNC4"], "snc4", []),
        ["lenovo", "Processors_SNC", "SNC4", True],
    ),
    "lenovo-no-4": (
        ("Lenovo", {"Processors_SNC": "Disabled"}, ["Disabled", "Enabled"], "snc4", []),
        ["lenovo", "Processors_SNC", "", True],
    ),
    "dell-one-node": (
        ("Dell Inc.", {"NumaNodesPerSocket": "1"}, ["0", "1", "2", "4"], "nps0", []),
        ["dell", "NumaNodesPerSocket", "0", True],
    ),
    "hpe-one-node": (("HPE", {DOMAINS: "Auto"}, None, "nps0", []), ["hpe", "", "", True]),
    "ami": (
        ("GIGABYTE", {"CbsDfCmnDramNpsSHP": "NPS1"}, None, "nps2", []),
        ["ami", "CbsDfCmnDramNpsSHP", "NPS2", True],
    ),
    "intel-for-amd": (
        ("Dell Inc.", {"SubNumaCluster": "Disabled"}, None, "nps4", []),
        ["dell", "", "4", True],
    ),
}
CHOSEN = "[__firmware_vendor, __firmware_attribute, __firmware_value, __firmware_graceful]"


def variables(
    maker: str, settings: dict[str, str], allowed: list[str] | None, mode: str, resets: list[str]
) -> dict[str, Any]:
    """What the role has registered by the time it chooses."""
    place = {"system_uri": "/redfish/v1/Systems/1"}
    facts = {
        "system": {"entries": [[place, {"Id": "1", "Manufacturer": maker}]]},
        "bios_attribute": {"entries": [[place, settings]]},
    }
    values = [{"ValueName": value} for value in allowed or []]
    entries = [{"AttributeName": name, "Value": values} for name in settings]
    registry = {"RegistryEntries": {"Attributes": entries}}
    reset = {"ResetType@Redfish.AllowableValues": resets}
    return {
        "ansible_connection": "local",
        "firmware_mode": mode,
        "firmware_vendor": "",
        "firmware_attribute": "",
        "firmware_value": "",
        "firmware_bmc_system": "",
        "__firmware_answer": {"redfish_facts": facts},
        "__firmware_registries": (
            {"failed": True, "msg": "HTTP Error 404"}
            if allowed is None
            else {"redfish_facts": {"bios_registries": {"bios_registry": registry}}}
        ),
        "__firmware_resource": {"json": {"Actions": {"#ComputerSystem.Reset": reset}}},
    }


# The packages of each node that a host shows, the requested mode, and what the role says.
SHOWN: dict[str, tuple[list[str], str, str]] = {
    "spanned": (
        ["0 1"],
        "nps1",
        "spanned shows one node over all packages. To show 1; same False; several packages True",
    ),
    "divided": (
        ["0", "0", "1", "1"],
        "nps0",
        "divided shows 2 nodes in each package. To show one over all packages;"
        " same False; several packages True",
    ),
    "reached": (
        ["0 1"],
        "nps0",
        "reached shows one node over all packages. To show one over all packages;"
        " same True; several packages True",
    ),
    "single": (["0"], "nps1", "single shows 1 node in each package. To show 1; same True;"),
}


def test_the_setting_is_chosen_from_what_there_is(root: Path, tmp_path: Path) -> None:
    hosts = {name: variables(*given) for name, (given, _) in CASES.items()}
    for name, (packages, mode, _) in SHOWN.items():
        hosts[name] = {
            "ansible_connection": "local",
            "firmware_mode": mode,
            "__firmware_look": {"stdout_lines": ["boot id", *packages]},
        }
    inventory = write_inventory(tmp_path / "hosts.yml", hosts)
    files = root / "roles/firmware/vars"
    chosen = f"{{{{ inventory_hostname }}}} chose {{{{ {CHOSEN} | to_json }}}}."
    shown = (
        "{{ __firmware_wanted }}; same {{ __firmware_shown == __firmware_nodes }};"
        " several packages {{ __firmware_several_packages }}"
    )
    plays = [
        {"hosts": ":".join(names), "gather_facts": False, "tasks": tasks(includes, message)}
        for names, includes, message in (
            (CASES, [f"{files}/main.yml", f"{files}/{{{{ __firmware_vendor }}}}.yml"], chosen),
            (SHOWN, [f"{files}/main.yml"], shown),
        )
    ]
    playbook = tmp_path / "choose.yml"
    playbook.write_text(yaml.safe_dump(plays))
    environment = {"ANSIBLE_DISPLAY_OK_HOSTS": "1"}
    outcome = playbooks.play(root, "-i", inventory, playbook=str(playbook), environment=environment)
    assert outcome.status == 0, outcome.said
    for host, (_, (vendor, attribute, value, graceful)) in CASES.items():
        words = f'["{vendor}", "{attribute}", "{value}", {str(graceful).lower()}]'
        assert outcome.says(f"{host} chose {words}."), outcome.said
    for _, _, sentence in SHOWN.values():
        assert outcome.says(sentence), outcome.said


def tasks(includes: list[str], message: str) -> list[dict[str, Any]]:
    """Read variables of the role and print what they say."""
    return [
        *({"ansible.builtin.include_vars": file} for file in includes),
        {"ansible.builtin.debug": {"msg": message}},
    ]

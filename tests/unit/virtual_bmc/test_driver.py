"""The lab's machines as the emulator sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sushy_tools import error

from lab_bmc import MODES, make_machine
from virtual_bmc import firmware_settings
from virtual_bmc.sushy_driver import LabDriver

NPS = "NumaNodesPerSocket"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def driver(tmp_path: Path, said: list[str]) -> LabDriver:
    make_machine(tmp_path, "server", MODES, NPS)
    make_machine(tmp_path, "small", {"nps1": 1}, NPS)
    (tmp_path / "bmc").mkdir()
    return LabDriver(tmp_path, said.append)


def test_machines_are_the_folders_with_a_description(driver: LabDriver) -> None:
    assert driver.systems == ["server", "small"]


def test_a_machine_answers_to_its_name_and_to_a_lasting_uuid(driver: LabDriver) -> None:
    identity = driver.uuid("server")
    assert driver.name(identity) == driver.name("server") == "server"
    assert LabDriver(driver.lab, print).uuid("server") == identity != driver.uuid("small")


def test_an_unknown_machine_is_not_found(driver: LabDriver) -> None:
    with pytest.raises(error.NotFound, match="the lab has no machine nobody"):
        driver.get_power_state("nobody")


def test_a_machine_without_a_process_is_off(driver: LabDriver) -> None:
    assert driver.get_power_state("server") == "Off"


def test_a_setting_waits_and_is_not_current_yet(driver: LabDriver) -> None:
    driver.set_bios("server", {NPS: "NPS4"})
    assert driver.get_bios("server") == {NPS: "NPS1"}
    assert firmware_settings.pending_settings(driver.folder("server")) == {NPS: "NPS4"}


def test_a_reset_of_the_settings_goes_back_to_the_first_mode(driver: LabDriver) -> None:
    driver.set_bios("server", {NPS: "NPS4"})
    driver.reset_bios("server")
    assert firmware_settings.pending_settings(driver.folder("server")) == {NPS: "NPS1"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({NPS: "NPS4"}, f"{NPS} of small cannot be NPS4; it can be NPS1"),
        ({"SncMode": "SNC2"}, f"small has no setting SncMode; it has {NPS}"),
        ({NPS: "NPS1", "Other": "x"}, "small has no setting Other"),
    ],
)
def test_what_a_machine_cannot_do_is_refused_as_a_whole(
    driver: LabDriver, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(error.BadRequest, match=sentence) as refusal:
        driver.set_bios("small", settings)
    assert refusal.value.code == 400
    assert json.loads((driver.folder("small") / "bios.json").read_text())["pending"] == {}


def test_the_registry_has_the_values_of_all_machines(driver: LabDriver) -> None:
    [entry] = firmware_settings.attribute_registry(driver.folders())
    assert entry["AttributeName"] == NPS
    assert [value["ValueName"] for value in entry["Value"]] == ["NPS0", "NPS1", "NPS2", "NPS4"]


def test_a_button_that_is_not_there_is_refused(driver: LabDriver) -> None:
    with pytest.raises(error.BadRequest, match="small has no Nmi; it has On, ForceOn, ForceOff"):
        driver.set_power_state("small", "Nmi")


def test_what_goes_wrong_after_the_button_is_in_the_log(driver: LabDriver, said: list[str]) -> None:
    # The folder is no complete machine, so that it cannot be switched on.
    (driver.folder("small") / "machine.json").write_text("{")
    driver.set_power_state("small", "On")
    driver.wait("small")
    [sentence] = said
    assert sentence.startswith("On of small failed: small: cannot read ")


def test_switching_off_what_is_off_is_no_error(driver: LabDriver, said: list[str]) -> None:
    for button in ("ForceOff", "GracefulShutdown"):
        driver.set_power_state("small", button)
        driver.wait("small")
    assert said == []

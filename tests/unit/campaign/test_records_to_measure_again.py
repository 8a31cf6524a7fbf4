"""Which changed components and lost records a run of the workflow passes to Snakemake."""

from __future__ import annotations

import copy
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from chaosity.campaign.campaign import Campaign
from chaosity.documents.config import read_config

HOST = "milan"


@pytest.fixture
def campaign(tmp_path, root):
    """Makes a run's campaign over a machine that is a file, whose records are there."""
    machine = root / "tests/data/machines/two_packages.xml"
    hosts = {HOST: {"chaosity_topology": str(machine)}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    config = {
        **read_config(),
        "inventory": str(tmp_path / "hosts.yml"),
        "results": str(tmp_path / "results"),
        "experiments": ["storage_sample"],
        "replicates": 1,
    }
    first = only_mode(Campaign(config, root=root))
    for path in map(Path, first.record_paths()):
        path.parent.mkdir(parents=True)
        write(path)
    return lambda: Campaign(config, root=root)


def only_mode(campaign):
    """The only host of a campaign, in its only configuration."""
    [mode] = campaign.modes.values()
    return mode


def write(path, text='{"verdict": {}}'):
    """Write a file, such as a record, later than all before; the history counts milliseconds."""
    time.sleep(0.01)
    path.write_text(text)


def asked(mode):
    """Point -> names of the components that ask for its measurement."""
    found = {}
    for point in mode.plan.points:
        names = (point["experiment"], point["point"], "1")
        if files := [Path(file) for file in mode.changed_component_files(*names)]:
            assert all(file.exists() for file in files)
            found[point["point"]] = [file.stem for file in files]
    return found


def component(mode):
    """The first drive of the last planned point: its name, file and the points that touch it."""
    name = next(one for one in mode.plan.points[-1]["components"] if one.startswith("drive"))
    points = {p["point"] for p in mode.plan.points if name in p["components"]}
    return name, mode.folder / "components" / f"{name}.json", points


def edited(path):
    """The text of a component with a person's note."""
    return json.dumps({**json.loads(path.read_text()), "note": "reseated"})


def test_a_changed_component_asks_for_the_points_that_touch_it_until_they_are_measured(campaign):
    run = only_mode(campaign())
    name, path, points = component(run)
    assert 0 < len(points) < len(run.plan.points)
    before = path.read_text()
    path.touch()
    assert asked(only_mode(campaign())) == {}
    write(path, edited(path))
    assert asked(only_mode(campaign())) == {point: [name] for point in points}
    write(path, before)  # the note was taken back
    assert asked(only_mode(campaign())) == {}
    write(path, edited(path))
    campaign()
    for point in points:
        write(run.folder / "storage_sample" / point / "rep1.json")
    assert asked(only_mode(campaign())) == {}
    write(path, before)  # taken back after a measurement
    assert set(asked(only_mode(campaign()))) == points
    for record in map(Path, run.record_paths()):
        record.unlink()
    assert asked(only_mode(campaign())) == {}  # a missing record has no components as inputs


def test_components_that_were_lost_ask_for_nothing(campaign):
    shutil.rmtree(component(only_mode(campaign()))[1].parent)
    assert asked(only_mode(campaign())) == {}


def test_lost_records_are_named_once_there_is_a_table(campaign):
    run = only_mode(campaign())
    lost = run.record_paths()[2]
    Path(lost).unlink()
    assert run.lost_record_paths() == []
    (run.folder / "measurements.parquet").touch()
    assert run.lost_record_paths() == [lost]


def test_a_run_says_why_records_are_measured_again(campaign):
    run = campaign()
    mode = only_mode(run)
    first, second, third, *_ = mode.plan.points

    def job(point, inputs=()):
        """A job of Snakemake that measures a point."""
        record = mode.folder / "storage_sample" / point["point"] / "rep1.json"
        names = {"experiment": "storage_sample", "point": point["point"]}
        wildcards = SimpleNamespace(host=HOST, configuration=mode.configuration, **names)
        return SimpleNamespace(
            rule=SimpleNamespace(name="measure"),
            wildcards=wildcards,
            input=SimpleNamespace(changed_components=list(inputs)),
            output=[str(record)],
        )

    elsewhere = copy.deepcopy(second) | {"definition": "another"}
    elsewhere["loads"][0]["command"][0] = "old/fio"
    changed = job(first, ["components/drive0.json"])
    moved, damaged = job(second), job(third)
    Path(moved.output[0]).write_text(
        json.dumps({"schema_version": 1, "verdict": {"status": "valid"}, "point": elsewhere})
    )
    Path(damaged.output[0]).write_text("")
    run.needed_jobs = lambda: [changed, moved, damaged]
    text = run.repeated_measurements_text()
    assert text.startswith("3 records are measured again: ")
    assert "drive0 changed (1)" in text
    assert "another definition: loads.0.command.0 was 'old/fio', is " in text
    assert "damaged (1)" in text
    Path(moved.output[0]).unlink()
    run.needed_jobs = lambda: [moved]
    assert run.repeated_measurements_text() is None

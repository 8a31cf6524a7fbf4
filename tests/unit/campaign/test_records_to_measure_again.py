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

from chaosity.campaign.hosts_and_plans_of_run import Campaign
from chaosity.documents.check_config import read_config

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
    first = Campaign(config, root=root)
    for path in map(Path, first.record_paths(HOST)):
        path.parent.mkdir(parents=True)
        write(path)
    return lambda: Campaign(config, root=root)


def write(path, text='{"verdict": {}}'):
    """Write a file, such as a record, later than all before; the history counts milliseconds."""
    time.sleep(0.01)
    path.write_text(text)


def asked(campaign):
    """Point -> names of the components that ask for its measurement."""
    found = {}
    for point in campaign.plans[HOST].points:
        wildcards = SimpleNamespace(
            host=HOST, experiment=point["experiment"], point=point["point"], replicate="1"
        )
        if files := [Path(file) for file in campaign.changed_component_files(wildcards)]:
            assert all(file.exists() for file in files)
            found[point["point"]] = [file.stem for file in files]
    return found


def component(campaign):
    """The first drive of the last planned point: its name, file and the points that touch it."""
    components = campaign.plans[HOST].points[-1]["components"]
    name = next(one for one in components if one.startswith("drive"))
    points = {p["point"] for p in campaign.plans[HOST].points if name in p["components"]}
    return name, campaign.configuration_folder(HOST) / "components" / f"{name}.json", points


def edited(path):
    """The text of a component with a person's note."""
    return json.dumps({**json.loads(path.read_text()), "note": "reseated"})


def test_a_changed_component_asks_for_the_points_that_touch_it_until_they_are_measured(campaign):
    run = campaign()
    name, path, points = component(run)
    assert 0 < len(points) < len(run.plans[HOST].points)
    before = path.read_text()
    path.touch()
    assert asked(campaign()) == {}
    write(path, edited(path))
    assert asked(campaign()) == {point: [name] for point in points}
    write(path, before)  # the note was taken back
    assert asked(campaign()) == {}
    write(path, edited(path))
    campaign()
    for point in points:
        write(run.configuration_folder(HOST) / "storage_sample" / point / "rep1.json")
    assert asked(campaign()) == {}
    write(path, before)  # taken back after a measurement
    assert set(asked(campaign())) == points
    for record in map(Path, run.record_paths(HOST)):
        record.unlink()
    assert asked(campaign()) == {}  # a missing record has no components as inputs


def test_components_that_were_lost_ask_for_nothing(campaign):
    shutil.rmtree(component(campaign())[1].parent)
    assert asked(campaign()) == {}


def test_lost_records_are_named_once_there_is_a_table(campaign):
    run = campaign()
    lost = run.record_paths(HOST)[2]
    Path(lost).unlink()
    assert run.lost_records(HOST) == []
    (run.configuration_folder(HOST) / "measurements.parquet").touch()
    assert run.lost_records(HOST) == [lost]


def test_a_run_says_why_records_are_measured_again(campaign):
    run = campaign()
    first, second, third, *_ = run.plans[HOST].points
    folder = run.configuration_folder(HOST)

    def job(point, inputs=()):
        """A job of Snakemake that measures a point."""
        record = folder / "storage_sample" / point["point"] / "rep1.json"
        wildcards = SimpleNamespace(host=HOST, experiment="storage_sample", point=point["point"])
        return SimpleNamespace(
            rule=SimpleNamespace(name="measure"),
            wildcards=wildcards,
            input=list(inputs),
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
    text = run.repetitions()
    assert text.startswith("3 records are measured again: ")
    assert "drive0 changed (1)" in text
    assert "another definition: loads.0.command.0 was 'old/fio', is " in text
    assert "damaged (1)" in text
    Path(moved.output[0]).unlink()
    run.needed_jobs = lambda: [moved]
    assert run.repetitions() is None

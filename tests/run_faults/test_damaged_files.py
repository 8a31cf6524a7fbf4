"""Damaged files of results: the next run makes them again and says so; no damage ends a run."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
from pathlib import Path

import pytest

from broken_runs import SIMULATED_HOST, ResultsFolder, chaosity, record_files
from chaosity.campaign.campaign import Campaign
from chaosity.campaign.files_made_again import set_damaged_derived_files_aside
from chaosity.documents.config import read_config
from chaosity.records.record_files import load_record, save_record
from inventories import write_inventory
from workflow_folder import Workflow


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(300))


def write_another_document(path: Path) -> None:
    path.write_text("{}\n")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    (path / "something").mkdir(parents=True)


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


DAMAGES = [
    empty,
    cut,
    fill_with_garbage,
    replace_by_folder,
    replace_by_fifo,
    replace_by_link_to_nothing,
]


def derived_files(run: Workflow) -> list[Path]:
    """All files of the host that a run computes from its records."""
    [folder] = (plan.parent for plan in run.folder.glob("results/*/*/plan.json"))
    patterns = ["*.parquet", "findings.json", "*.html", "*.svg", "summary.*"]
    patterns += ["figures/[!.]*", "exports/*", ".tidy/*"]
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


@pytest.mark.thorough
def test_the_next_run_makes_damaged_files_again(simulated: Workflow, finished: Path):
    run = simulated
    run.timeout = 900
    shutil.copytree(finished, run.folder / "results")
    run.run()
    records = sorted(run.folder.glob("results/*/*/*/*/rep1.json"))
    damages = [*DAMAGES, write_another_document]
    kept = {path: path.read_bytes() for path in records[len(damages) :]}
    for each, path in zip(damages, records, strict=False):
        each(path)
    sizes = {path: path.stat().st_size for path in derived_files(run)}
    names = {path.name for path in sizes}
    assert {"measurements.parquet", "history.parquet", "findings.json", "notes.txt"} <= names
    for path, damage in zip(sizes, itertools.cycle(DAMAGES), strict=False):
        # A cut text is still a text, and the reports are replaced in the end.
        whole = damage is cut and path.suffix in (".csv", ".txt", ".prom", ".png")
        (empty if whole or path.name == "findings.json" else damage)(path)
    said = run.run()
    assert f"{len(damages)} measurements to take" in said
    for path in records[: len(damages)]:
        [sentence] = [
            line for line in said.splitlines() if f"{path.parent.name}/rep1.json:" in line
        ]
        assert "the record is " in sentence
        assert re.search(r"kept as rep1\.json\.damaged-\S+, and measured again\.$", sentence)
        assert load_record(path)["verdict"]["status"] == "valid"
        [aside] = path.parent.glob("rep1.json.damaged-*")
        assert os.path.lexists(aside)
    assert "findings.json: the file is " in said and "and computed again." in said
    assert {path: path.read_bytes() for path in kept} == kept
    for path, size in sizes.items():
        assert path.stat().st_size > 0.5 * size, path
    # With a whole report, nothing but the run itself asks for the files of which it was made.
    table = run.path("*/*/measurements.parquet")
    empty(table)
    said = run.run("--until", "tidy")
    assert "measurements.parquet: the file is " in said and said.count("the file is ") == 1
    assert table.stat().st_size > 0.5 * sizes[table]


# A whole file of each kind that a run computes from records, besides the tables.
WHOLE = {
    **{"report.html": b"<html></html>\n", "findings.json": b'{"anomalies": []}\n'},
    **{"topology.svg": b"<svg></svg>\n", "summary.json": b"{}\n", "summary.txt": b"valid\n"},
    **{"figures/a.svg": b"<svg></svg>", "figures/a.png": b"\x89PNG, pixels IEND\xaeB`\x82"},
    **{"figures/figures.json": b"[{}]", "figures/a.csv": b"a,b\n1,2\n"},
    **{"exports/notes.txt": b"none\n", "exports/weights.json": b"[1, 2]\n"},
}


def test_any_damage_of_one_derived_file_is_noticed(results: ResultsFolder, tmp_path: Path):
    assert results.write("tidy").returncode == 0
    tables = {
        name: (results.folder / name).read_bytes()
        for name in ("measurements.parquet", "history.parquet")
    }
    # Reading whole tables takes longest, so they are beside a damaged table alone.
    for name, beside in [*((each, WHOLE) for each in WHOLE), *((each, tables) for each in tables)]:
        for damage in [None, *DAMAGES]:
            if damage is cut and name.endswith((".csv", ".txt", ".png")):
                continue  # a cut text is still a text, and a picture is looked at by its end
            folder = tmp_path / "results"
            for each, content in beside.items():
                (folder / each).parent.mkdir(parents=True, exist_ok=True)
                (folder / each).write_bytes(content)
            if damage:
                damage(folder / name)
            found = [*set_damaged_derived_files_aside(folder)]
            assert len(found) == (1 if damage else 0), (name, damage, found)
            for sentence in found:
                assert Path(name).name in sentence and " is " in sentence
                assert "computed again." in sentence
            assert len([*folder.glob("*.damaged-*")]) == len(found)
            shutil.rmtree(folder)


def test_damaged_records_are_set_aside_when_a_run_is_planned(
    results: ResultsFolder, root: Path, capsys: pytest.CaptureFixture[str]
):
    damages = [*DAMAGES, write_another_document]
    damaged = [results.record(point) for point in results.points][: len(damages)]
    for damage, path in zip(damages, damaged, strict=True):
        damage(path)
    hosts = write_inventory(results.results.parent / "hosts.yml", {"sim": SIMULATED_HOST})
    config = {"inventory": str(hosts), "results": str(results.results)}
    only = {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 8}}
    Campaign({**read_config(), **config, **only, "replicates": 1}, root=root)
    said = capsys.readouterr().err.splitlines()
    for path in damaged:
        [sentence] = [line for line in said if f"{path.parent.name}/rep1.json: the record" in line]
        assert sentence.endswith("and measured again.")
        assert not os.path.lexists(path)
        [aside] = path.parent.glob("rep1.json.damaged-*")
        assert os.path.lexists(aside)
    assert len(record_files(results.results)) == len(results.points) - len(damages)


def test_commands_refuse_a_fifo_and_do_not_wait(results: ResultsFolder):
    record = results.record(results.points[0])
    digests = results.record(results.points[1]).parent / "attempts/SHA256SUMS"
    for path in (record, digests):
        replace_by_fifo(path)
    done = results.write("tidy")
    assert done.returncode == 0, done.stdout
    with pytest.raises(ValueError, match="not a complete record: it is not a regular file"):
        load_record(record)
    replace_by_fifo(results.folder / "measurements.parquet")
    done = chaosity("show", results.folder)
    assert done.returncode == 2
    assert "measurements.parquet: " in done.stdout and "it is not a regular file" in done.stdout


def test_a_list_of_digests_with_garbage_costs_no_measurement(results: ResultsFolder):
    point = results.points[0]
    digests = results.record(point).parent / "attempts/SHA256SUMS"
    fill_with_garbage(digests)
    load_record(results.record(point))
    done = results.measure(point)
    assert done.returncode == 0, done.stdout
    load_record(results.record(point))


def test_a_file_system_without_hard_links_gets_copies(
    results: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As exFAT does, the kernel refuses each link."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "point/rep1.json"
    record = load_record(results.record(results.points[0]))
    for day in (1, 2):
        save_record(record | {"finished_at": f"2026-01-0{day}T00:00:00.000Z"}, path)
        assert load_record(path)["finished_at"].startswith(f"2026-01-0{day}")
    attempts = sorted(path.parent.glob("attempts/*.json"))
    assert [load_record(each)["finished_at"][9] for each in attempts] == ["1", "2"]
    assert path.read_bytes() == attempts[1].read_bytes()
    assert {each.name for each in path.parent.iterdir()} == {"attempts", "rep1.json"}

"""The overview of hosts, alone and as a fleet."""

from __future__ import annotations

import csv
import itertools
import json
import random
from dataclasses import asdict
from datetime import date, timedelta
from functools import cache

import duckdb
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.compare.outlier_hosts import find_outlier_hosts
from chaosity.components import processor_model
from chaosity.health.check_history import SERIES_COLUMNS, SERIES_FILE
from chaosity.report.overview import compare_equal_hosts, write_overview
from chaosity.report.page import (
    BestValue,
    ProblemAndSeverity,
    ReportSummary,
    has_outdated_skip_note,
)
from chaosity.report.problems import OK
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table
from machines import planned
from simulated_fleet import fleet_tables, write_fleet

RESOURCES = {"Memory bandwidth": (BestValue("one node", "40.0 GB/s", "node0"),)}


def measured(results, host="lab", configuration="default", severity=OK):
    """Write the files of a report of a host."""
    folder = results / host / configuration
    folder.mkdir(parents=True)
    worst = (ProblemAndSeverity(severity, "Failed points: 1 of 9"),)
    points = {"valid": 8, "failed": 1, "missing": 0}
    summary = ReportSummary(host, configuration, "measured 2026", worst, points, RESOURCES)
    (folder / "summary.json").write_text(json.dumps(asdict(summary)))
    (folder / "summary.txt").write_text("warning: something\n")
    (folder / "report.html").write_text("")
    text = json.dumps({"host": host, "configuration": configuration})
    (results / host / "host.json").write_text(text)
    return folder


def leave_out(results, host, reason="no route to host"):
    (results / host).mkdir(exist_ok=True)
    entry = {"host": host, "at": "2026-11-21T09:15:00.000Z", "reason": reason}
    (results / host / "left_out.json").write_text(json.dumps(entry))


def overview(results):
    found = write_overview(results.glob("*/*/summary.json"), results / "index.html")
    return found, (results / "index.html").read_text(encoding="utf-8")


def test_a_broken_summary_is_named_and_left_out(tmp_path, capsys):
    broken = measured(tmp_path, "a") / "summary.json"
    for text in ("", "{}"):
        broken.write_text(text)
        assert overview(tmp_path)[0].rows == ()
        said = capsys.readouterr().err
        assert f"{broken}: the file is not a summary of a report" in said
        assert said.endswith(
            "; run snakemake, which writes the file again. The page leaves this report out.\n"
        )
    measured(tmp_path, "b")
    assert [row.summary.host for row in overview(tmp_path)[0].rows] == ["b"]


def test_reports_of_a_host_whose_description_is_broken_say_what_is_there(tmp_path):
    folder = measured(tmp_path)
    (folder.parent / "host.json").write_text("")
    assert run(tmp_path).exit_code == 0


def test_hosts_in_a_folder_below_are_named_where_there_is_none(tmp_path, monkeypatch):
    """`make run` prints the usual folder also if it wrote elsewhere, so this is no failure."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(chaosity, ["reports"])
    assert done.exit_code == 0
    assert (
        done.output
        == "There are no results of a host below results/; measure a host with make run.\n"
    )
    measured(tmp_path / "results/demo", "a")
    done = CliRunner().invoke(chaosity, ["reports"])
    assert done.exit_code == 0
    assert "use `chaosity reports --results results/demo`" in done.output
    assert run("results").exit_code == 1
    assert "a/default/report.html" in run("results/demo").output


def run(results, *arguments):
    return CliRunner().invoke(chaosity, ["reports", "--results", str(results), *arguments])


def test_a_report_that_mentions_the_skipped_host_is_not_stale(tmp_path):
    folder = measured(tmp_path, "a")
    leave_out(tmp_path, "a")
    assert has_outdated_skip_note(folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["left_out"] = "2026-11-21 09:15 UTC: no route to host"
    (folder / "summary.json").write_text(json.dumps(summary))
    assert not has_outdated_skip_note(folder)
    (tmp_path / "a/left_out.json").unlink()
    assert has_outdated_skip_note(folder)  # the host is back


SLOW_NODE = {"fault": "slow_node", "node": 1, "remaining": 0.9}


@cache
def server():
    """A server with two packages, each of one node with a drive."""
    return planned("fleet", experiments=["memory_bandwidth", "storage_bandwidth"])


def test_hosts_of_another_processor_or_configuration_need_not_be_equal(tmp_path):
    _, folder = write_fleet(tmp_path, server(), 2, {})
    system = folder / "components/system.json"
    document = system.read_text()
    system.write_text(json.dumps({"cpu_model": "Intel Xeon Gold 5218"}))
    assert overview(tmp_path)[0].groups == ()
    system.write_text(document)
    assert len(overview(tmp_path)[0].groups) == 1
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace(folder.name, "nps1"))
    assert overview(tmp_path)[0].groups == ()


def test_a_host_without_a_usable_table_is_named_and_not_compared(tmp_path):
    folders = write_fleet(tmp_path, server(), 6, {})
    _, no_table, no_parquet, no_value, lacking, older = (
        folder / "measurements.parquet" for folder in folders
    )
    rows = read_parquet_table(no_table)
    no_table.unlink()
    no_parquet.write_text("no Parquet")
    write_parquet_table(rows.assign(status="missing"), no_value)
    for path, column in ((lacking, "replicate"), (older, "levels")):
        without = duckdb.sql(f"SELECT * EXCLUDE {column} FROM '{path}'").df()
        duckdb.from_df(without).write_parquet(str(path))
    [group] = overview(tmp_path)[0].groups
    texts = [one.text for one in group.statements]
    assert texts[0].startswith("server000 against server005: ")  # an older table is compared
    assert texts[-4:] == [
        "server001 was not compared: it has no measurements.parquet.",
        "server002 was not compared: its measurements.parquet is not a tidy table.",
        "server003 was not compared: its measurements.parquet has no value.",
        "server004 was not compared: its measurements.parquet is not a tidy table.",
    ]


def test_hosts_without_common_cells_are_reported(tmp_path):
    folders = write_fleet(tmp_path, server(), 2, {})
    for folder, load in zip(folders, ("memory", "storage"), strict=True):
        tidy = read_parquet_table(folder / "measurements.parquet")
        write_parquet_table(tidy[tidy["load"] == load], folder / "measurements.parquet")
    [group] = overview(tmp_path)[0].groups
    assert group.statements[0].text.startswith("2 hosts could not be compared: no comparable cell")


def test_the_processor_model_comes_from_component_or_topology(tmp_path):
    assert processor_model(tmp_path) is None
    (tmp_path / "topology.json").write_text(json.dumps({"host": {"cpu_model": "one"}}))
    assert processor_model(tmp_path) == "one"
    (tmp_path / "components").mkdir()
    (tmp_path / "components/system.json").write_text(json.dumps({"cpu_model": "other"}))
    assert processor_model(tmp_path) == "other"
    (tmp_path / "topology.json").write_text("[]")
    (tmp_path / "components/system.json").write_text("broken")
    assert processor_model(tmp_path) is None
    # Of nobody's processor something is known, so all may be of the same.
    summaries = {
        tmp_path / name / "summary.json": ReportSummary(name, "nps4", "", (), {}, {})
        for name in "ab"
    }
    [group] = compare_equal_hosts(summaries)
    assert (group.processor, group.host_count) == (None, 2)


def write_checks(folder, *, nights, step=None, loss=0.0, seed=1, noise=0.01):
    """Write a series of nightly checks of two points; the first gets worse on night `step`."""
    chance = random.Random(seed)
    with (folder / SERIES_FILE).open("w", newline="") as stream:
        rows = csv.DictWriter(stream, SERIES_COLUMNS, restval="0")
        rows.writeheader()
        for night, node in itertools.product(range(nights), (1, 0)):
            share = 1.0 - loss if node and step is not None and night >= step else 1.0
            value = 100e9 * share * (1.0 + chance.gauss(0.0, noise))
            moment = f"{date(2026, 10, 1) + timedelta(night)}T02:00:00.000Z"
            names = {"time": moment, "experiment": "memory_bandwidth", "clear": "no"}
            metric = "bandwidth_bytes_per_second"
            point = f"memory=node{node}+node{node}+read"
            rows.writerow({**names, "point": point, "metric": metric, "value": value})


def test_drives_without_a_known_node_have_a_column_each():
    tables = fleet_tables(server(), 5, {4: [{"fault": "slow_host", "remaining": 0.8}]})
    for name, table in tables.items():
        is_drive = table.rows["target_kind"] == "drive"
        tables[name] = table.with_columns(
            target_nodes=table.rows["target_nodes"].mask(is_drive, "")
        )
    found = find_outlier_hosts(tables, packages=server().topology.package_of_node)
    own = [one for one in found.resources if one.group.endswith("drives without a known node")]
    rows = tables["server000"].rows
    drives = set(rows.loc[(rows["target_kind"] == "drive") & (rows["drives"] == 1), "target"])
    assert {one.place for one in own} == drives
    assert len(drives) > 1
    assert all(one.clear == (False, False, False, False, True) for one in own)


def test_hosts_that_are_built_differently_are_groups_of_their_own(tmp_path):
    folders = write_fleet(tmp_path, server(), 6, {4: [SLOW_NODE], 5: [SLOW_NODE]})
    for folder in folders[4:]:
        (folder.parent / "host.json").write_text('{"equal_hosts": "half of the memory modules"}')
    found, html = overview(tmp_path)
    assert [(group.host_count, group.outlier_hosts) for group in found.groups] == [
        (4, set()),
        (2, set()),
    ]
    # Equal hosts have no mark and no date.
    assert "Smallest detectable deviation: about" in html
    assert 'clear"' not in html.split("<tbody>")[1].split("</tbody>")[0]
    assert not found.has_checks


def test_a_host_whose_map_was_bad_before_its_checks_says_so(tmp_path):
    folders = write_fleet(tmp_path, server(), 5, {2: [SLOW_NODE]})
    write_checks(folders[2], nights=20)
    text = overview(tmp_path)[0].groups[0].statements[0].text
    assert text.endswith(
        "20 checks show no change since the map, so this host deviated before the map."
    )


def test_a_broken_series_is_reported_and_does_not_stop_the_page(tmp_path):
    folders = write_fleet(tmp_path, server(), 1, {})
    (folders[0] / SERIES_FILE).write_text("nothing\n")
    found, html = overview(tmp_path)
    assert found.rows[0].severity == "warning"
    assert "the file is not a series of checks" in html
    assert "not a series of checks" in found.worst_problem_sentence

"""The page of a fleet says which host departs, in what resource, how surely and since when."""

from __future__ import annotations

import csv
import itertools
import random
from datetime import date, timedelta
from functools import cache

from chaosity.compare.outlier_hosts import find_outlier_hosts
from chaosity.health.check_series import COLUMNS, SERIES_FILE
from chaosity.report.overview import write_overview
from machines import planned
from simulated_fleet import fleet_tables, write_fleet

SLOW_NODE = {"fault": "slow_node", "node": 1, "remaining": 0.9}


@cache
def server():
    """A server with two packages, each of one node with a drive."""
    return planned("fleet", experiments=["memory_bandwidth", "storage_bandwidth"])


def write_checks(folder, *, nights, step=None, loss=0.0, seed=1, noise=0.01):
    """Write a series of nightly checks of two points; the first gets worse on night `step`."""
    chance = random.Random(seed)
    with (folder / SERIES_FILE).open("w", newline="") as stream:
        rows = csv.DictWriter(stream, COLUMNS, restval="0")
        rows.writeheader()
        for night, node in itertools.product(range(nights), (1, 0)):
            share = 1.0 - loss if node and step is not None and night >= step else 1.0
            value = 100e9 * share * (1.0 + chance.gauss(0.0, noise))
            moment = f"{date(2026, 10, 1) + timedelta(night)}T02:00:00.000Z"
            names = {"time": moment, "experiment": "memory_bandwidth", "clear": "no"}
            metric = "bandwidth_bytes_per_second"
            point = f"memory=node{node}+node{node}+read"
            rows.writerow({**names, "point": point, "metric": metric, "value": value})


def page(results):
    found = write_overview(results.glob("*/*/summary.json"), results / "index.html")
    return found, (results / "index.html").read_text(encoding="utf-8")


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
    found, html = page(tmp_path)
    assert [(group.hosts, group.outlier_hosts) for group in found.groups] == [
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
    text = page(tmp_path)[0].groups[0].statements[0].text
    assert text.endswith("Its 20 checks show no change since the map: it was so before.")


def test_a_broken_series_is_reported_and_does_not_stop_the_page(tmp_path):
    folders = write_fleet(tmp_path, server(), 1, {})
    (folders[0] / SERIES_FILE).write_text("nothing\n")
    found, html = page(tmp_path)
    assert found.rows[0].severity == "warning"
    assert "the file is not a series of checks" in html
    assert "not a series of checks" in found.worst_problem_sentence

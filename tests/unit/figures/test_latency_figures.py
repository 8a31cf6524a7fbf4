"""Test the figures of latency experiments on a machine with one node and one with eight nodes."""

from __future__ import annotations

import csv
import json
import re

import pandas as pd
import pytest
import synthetic
import synthetic_latency as latency
from lxml import etree
from table_figures import draw

from chaosity.figures.axis_order_and_labels import is_byte_column, make_axis_value
from shipped_data import PUBLISHED_TABLES

SWEEP = PUBLISHED_TABLES / "numa_bench_epyc7a53_latency_sweep_ns.csv"
SVG = "{http://www.w3.org/2000/svg}"
LINES = {"name": "f", "kind": "lines", "title": "t"}


def drawn_of(machine, folder, experiments=latency.EXPERIMENTS, **keys):
    files = draw(experiments, latency.tidy(machine, **keys), latency.topology(machine), folder)
    assert [file.problem for file in files] == [None] * len(files)
    return folder, {file.name: file for file in files}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return drawn_of(latency.epyc(), tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    return drawn_of(latency.small(), tmp_path_factory.mktemp("one_node"))


def figure(entry, machine, folder, **keys):
    """Return one figure, drawn from its own description."""
    experiment = {"experiment": "loaded_latency", "figures": [entry], **keys}
    tidy, topology = latency.tidy(machine), latency.topology(machine)
    [file] = draw([experiment], tidy, topology, folder)
    return file


def titles(folder, name):
    root = etree.parse(folder / f"{name}.svg").getroot()
    return {
        mark.get("id"): mark.find(f"{SVG}title").text
        for mark in root.iter(f"{SVG}g")
        if mark.get("class") == "mark"
    }


def rows(folder, name):
    with (folder / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_numbers_of_bytes_are_sizes():
    assert make_axis_value(2**30 + 2**20, column="bytes").name == "1074790400"
    assert make_axis_value(32 * 2**10, column="chase.bytes").long == "32 KiB"
    assert make_axis_value(2**30, column="array_bytes").kind == "size"
    assert not is_byte_column("traffic_bytes_per_second")
    assert make_axis_value(4096).short == "4096"


def test_sizes_read_as_sizes_in_marks_and_sentences(large):
    folder, files = large
    said = files["latency_by_size"].sentence
    assert said.startswith("From working set 4 KiB to 1 GiB, latency changes by the factor ")
    texts = titles(folder, "latency_by_size").values()
    assert any(text.startswith("PU 0, mode serial, 32 MiB: ") for text in texts)
    assert len(titles(folder, "latency_by_size")) == len(rows(folder, "latency_by_size"))
    assert rows(folder, "latency_by_size")[0]["bytes"] == "4096"


@pytest.mark.parametrize(("scale", "axis"), [("log2", "kernel"), ("log", "share")])
def test_a_logarithmic_axis_needs_numbers_above_zero(tmp_path, scale, axis):
    entry = {**LINES, "load": "load", "metric": latency.TRAFFIC, "x": axis, "x_scale": scale}
    problem = figure({**entry, "combine": "median"}, latency.small(), tmp_path).problem
    assert (problem is None) == (axis == "share")
    assert axis == "share" or "x_scale log2 needs numbers above zero" in problem


def test_alone_and_together_are_compared(large):
    _, files = large
    said = files["latency_together"].sentence
    assert said.startswith("Latency with mode concurrent is 1.1")
    assert (
        " times the latency with mode serial at 32 MiB, and more than 1.075 times at every larger"
        in said
    )
    assert "With mode concurrent, 8 initiators are slower than others of their nodes (1.4" in said
    assert "PU 0, PU 6, PU 12, PU 18, PU 24, PU 30, PU 36 and PU 42." in said
    assert files["latency_by_core"].sentence == said


def test_a_curve_stands_where_it_was_measured(large):
    folder, files = large
    table = rows(folder, "loaded_latency")
    idle = [row for row in table if not row["load.kernel"]]
    assert len(idle) == 8
    assert {row[f"load.{latency.TRAFFIC}"] for row in idle} == {"0.0"}
    full = next(row for row in table if float(row[f"load.{latency.TRAFFIC}"] or 0.0) > 37e9)
    low, high = (float(full[f"interval_{end}_load.{latency.TRAFFIC}"]) for end in ("low", "high"))
    assert low < float(full[f"load.{latency.TRAFFIC}"]) < high
    texts = titles(folder, "loaded_latency").values()
    assert any(text.startswith("pu0 -> node0, kernel read, at 3") for text in texts)
    assert any(text.startswith("pu0 -> node0, alone, at 0.0 GB/s: ") for text in texts)
    assert len(texts) == len(table) - 1  # the failed one has no place
    assert files["loaded_latency"].failed[0].startswith("chase=pu6.load=node1+copy+70: placement")


def test_the_numbers_of_the_curves_stand_beside_the_figure(large):
    folder, files = large
    [table] = files["loaded_latency"].tables
    assert table.columns[:2] == ("Target node", "Kernel")
    assert len(table.rows) == 8 * 3
    assert [cell.text for cell in table.rows[0][:2]] == ["node 0", "read"]
    assert table.rows[0][3].text.endswith(" GB/s")
    assert table.rows[0][3].detail.endswith("n = 3")
    numbers = rows(folder, "loaded_latency_numbers")
    assert len(numbers) == 8 * 3 * 6
    assert set(numbers[0]) >= {"target", "load.kernel", "quantity", "metric", "median", "reason"}
    assert files["loaded_latency"].numbers == "loaded_latency_numbers.csv"
    assert "Latency doubles at" in files["loaded_latency"].sentence
    # The curves with the lowest and the highest such bandwidth.
    assert re.search(r" of the peak, [^)]+\) to \d", files["loaded_latency"].sentence)


def test_a_curve_with_one_replicate_says_that_there_is_no_interval(tmp_path):
    _, files = drawn_of(latency.small(1), tmp_path)
    [table] = files["loaded_latency"].tables
    assert table.rows[0][2].detail == "no interval: n = 1"
    assert files["loaded_latency"].sentence.endswith(
        "The values have no intervals, since each point has one replicate."
    )


def test_a_line_through_points_of_two_places_is_a_problem_of_the_figure(tmp_path):
    entry = {**latency.EXPERIMENTS[2]["figures"][0]}
    del entry["panels"]
    problem = figure(entry, latency.epyc(), tmp_path).problem
    assert "joins points of several initiators: pu0, pu12" in problem


def test_rates_of_several_loads_of_a_name_add_up(tmp_path):
    found = latency.small()
    tidy = latency.tidy(found)
    twice = tidy[tidy["load"] == "load"].assign(initiator="others1")
    tidy = pd.concat([tidy, twice], ignore_index=True)
    experiment = [latency.EXPERIMENTS[2]]
    draw(experiment, tidy, latency.topology(found), tmp_path)
    both = max(float(row[f"load.{latency.TRAFFIC}"]) for row in rows(tmp_path, "loaded_latency"))
    alone = tidy.loc[tidy["load"] == "load", "value"].max()
    assert both == pytest.approx(2.0 * alone, rel=0.1)


def test_levels_of_another_load_are_columns(tmp_path):
    entry = {
        "name": "f",
        "kind": "lines",
        "title": "t",
        "load": "chase",
        "metric": latency.LATENCY,
        "x": "load.share",
        "series": "load.kernel",
        "panels": "chase.target",
    }
    file = figure(entry, latency.epyc(), tmp_path)
    assert file.problem is None
    assert {row["load.share"] for row in rows(tmp_path, "f")} == set(map(str, latency.SHARES))


def test_a_table_says_where_memory_was_asked_for_and_seen(large, one_node):
    _, files = large
    serial, concurrent = files["latency_by_core"].tables
    assert serial.caption.startswith("serial: chase latency (ns), median of 3 replicates")
    assert concurrent.caption.startswith("concurrent: ")
    assert serial.columns[:5] == (
        "Initiator processing unit",
        "Its node",
        "Memory node",
        "Pages found on",
        "4 KiB",
    )
    assert [cell.text for cell in serial.rows[2][:4]] == ["6", "1", "1", "1"]
    assert serial.rows[0][4].text.startswith("1.2")
    assert "95 % interval" in serial.rows[0][4].detail
    assert (len(serial.rows), len(serial.columns)) == (16, 4 + 19)
    assert files["latency_by_core"].svg is None
    assert len(one_node[1]["latency_by_core"].tables[0].rows) == 2


def test_pages_that_were_seen_elsewhere_stand_out(tmp_path):
    found = latency.small()
    tidy = latency.tidy(found)
    tidy.loc[tidy["initiator"] == "pu1", "seen_nodes"] = "0-1"
    tidy.loc[tidy["initiator"] == "pu0", "seen_nodes"] = None
    files = draw([latency.EXPERIMENTS[0]], tidy, latency.topology(found), tmp_path)
    table = next(f for f in files if f.kind == "table").tables[0]
    assert [(row[3].text, row[3].state) for row in table.rows] == [
        ("unknown", "odd"),
        ("0-1 (requested: 0)", "odd"),
    ]


def test_failed_and_unmeasured_values_of_a_table_are_told(tmp_path):
    found = latency.small()
    found.failed = {"chase=pu0+node0+4096": "killed"}
    tidy = latency.tidy(found)
    lost = (tidy["point"] == "chase=pu0+node0+8192") & (tidy["experiment"] == "latency_by_size")
    tidy.loc[lost, ["status", "value"]] = ["missing", None]
    files = draw([latency.EXPERIMENTS[0]], tidy, latency.topology(found), tmp_path)
    first = next(f for f in files if f.kind == "table").tables[0].rows[0]
    assert (first[4].text, first[4].state) == ("failed", "failed")
    assert first[4].detail == "failed in 3 replicates: killed"
    assert (first[5].text, first[5].state) == ("\N{EN DASH}", "missing")


def test_more_sizes_than_a_page_is_wide_go_on_below(tmp_path, monkeypatch):
    monkeypatch.setattr("chaosity.figures.value_and_curve_tables.MOST_COLUMNS", 10)
    _, files = drawn_of(latency.small(), tmp_path)
    tables = files["latency_by_core"].tables
    assert [len(table.columns) - 4 for table in tables] == [10, 9, 10, 9]
    assert tables[1].caption.endswith(", continued")


def test_a_cell_has_its_distance(large):
    folder, _ = large
    texts = titles(folder, "latency_matrix")
    assert texts["latency_matrix-cell-0-4"].endswith("(SLIT 32)")
    assert {row["distance"] for row in rows(folder, "latency_matrix")} == {"10.0", "12.0", "32.0"}


def test_a_table_of_distances_that_lies_is_told(large, tmp_path):
    _, files = large
    for name in ("latency_matrix", "latency_by_distance"):
        assert "The distance agrees with the measurement: in 0 of " in files[name].sentence
    _, lying = drawn_of(latency.epyc(), tmp_path, [latency.EXPERIMENTS[1]], lies=True)
    for name in ("latency_matrix", "latency_by_distance"):
        said = lying[name].sentence
        assert "The distance contradicts the measurement: in " in said
        assert "Largest contradiction: pu" in said
        assert "(distance 12, 1" in said


def test_every_pair_is_a_mark_of_the_scatter(large):
    folder, _ = large
    texts = titles(folder, "latency_by_distance")
    assert len(texts) == 63
    assert any(
        text.startswith("pu0 -> node4, other package, distance 32: 1") for text in texts.values()
    )


def test_one_distance_orders_nothing(tmp_path):
    found = synthetic.Machine("h", ((0, 1),), {}, 4, 3)
    tidy = latency.tidy(found)
    tidy["distance"] = 10.0
    [_, file] = draw([latency.EXPERIMENTS[1]], tidy, latency.topology(found), tmp_path)
    assert "All pairs have the same distance (10)" in file.sentence


def test_cores_stand_by_node_and_l3_domain(tmp_path):
    """Two nodes whose units are numbered in turn, each with its L3 domains in turn."""
    found = synthetic.Machine("h", ((0,), (1,)), {}, 4, 2)
    topology = latency.topology(found)
    topology["nodes"][0]["cpus"], topology["nodes"][1]["cpus"] = "0,2,4,6", "1,3,5,7"
    topology["l3_domains"] = [
        {"index": n, "cpus": c} for n, c in enumerate(("0,4", "2,6", "1,3,5,7"))
    ]
    names = [f"pu{n}" for n in range(8)]
    loads = [
        {
            **latency.chase(found, int(a[2:]), int(a[2:]) % 2, int(a[2:]) % 2, 50.0, responder=b),
            "load": "line",
        }
        for a in names
        for b in names
        if a != b
    ]
    table = [
        row
        for load in loads
        for row in latency.point(
            found, "core_to_core", f"{load['initiator']}{load['levels']}", [load]
        )
    ]
    tidy = pd.DataFrame(table, columns=list(latency.TYPES)).astype(latency.TYPES)
    draw([latency.EXPERIMENTS[3]], tidy, topology, tmp_path)
    order = list(dict.fromkeys(row["responder"] for row in rows(tmp_path, "core_to_core")))
    assert order == ["pu0", "pu4", "pu2", "pu6", "pu1", "pu3", "pu5", "pu7"]
    assert order == list(dict.fromkeys(row["initiator"] for row in rows(tmp_path, "core_to_core")))
    assert any(
        text.startswith("pu0 -> pu4: ") and text.endswith("(line on node0)")
        for text in titles(tmp_path, "core_to_core").values()
    )


def test_several_loads_of_a_name_do_not_fall_on_one_mark_unseen(tmp_path):
    entry = {**LINES, "load": "chase", "metric": latency.LATENCY, "x": "bytes", "series": "mode"}
    problem = figure(entry, latency.epyc(), tmp_path, experiment="latency_by_size").problem
    assert "16 points fall on the mark" in problem


def test_the_manifest_keeps_tables_as_json(large):
    folder, _ = large
    stored = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    kinds = {entry["kind"] for entry in stored}
    assert kinds == {"lines", "table", "heatmap", "scatter", "curve"}


def test_unchanged_data_gives_equal_files(one_node, tmp_path):
    folder, _ = one_node
    drawn_of(latency.small(), tmp_path)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_the_published_sweep_goes_through_the_same_figures(tmp_path):
    _, files = sweep_figures(tmp_path)
    said = files["latency_together"].sentence
    assert " times the latency with mode serial at 128 MiB, and more than 1.075" in said
    assert "With mode concurrent, 4 initiators are slower than others of their node" in said
    assert ": PU 1, PU 17, PU 33 and PU 49." in said
    serial, _ = files["latency_by_core"].tables
    assert serial.columns[4:] == tuple(
        f"{2**power} MiB" if power < 10 else f"{2 ** (power - 10)} GiB" for power in range(15)
    )
    assert [row[0].text for row in serial.rows] == [
        *("1", "9", "17", "25", "33", "41", "49", "57"),
    ]
    assert serial.rows[0][4].text == "10.5"


def sweep_figures(folder):
    """The figures of document 003's sweep: eight loads in each concurrent point."""
    machine = synthetic.Machine("epyc7a53", ((0, 1, 2, 3),), {}, 16, 1, noise=0.0)
    points: dict[str, list] = {}
    with SWEEP.open(newline="") as stream:
        for row in csv.DictReader(stream):
            node, size = int(row["cpu_node"]), int(row["size_MB"]) * 2**20
            load = latency.chase(
                machine,
                int(row["core"]),
                node,
                int(row["mem_node"]),
                float(row["latency_ns"]),
                bytes=size,
            )
            name = f"chase={row['core'] if row['mode'] == 'serial' else 'all'}+{size}"
            points.setdefault((name, row["mode"]), []).append(load)
    table = [
        row
        for (name, mode), loads in points.items()
        for row in latency.point(machine, "latency_by_size", name, loads, mode=mode)
    ]
    tidy = pd.DataFrame(table, columns=list(latency.TYPES)).astype(latency.TYPES)
    files = draw([latency.EXPERIMENTS[0]], tidy, latency.topology(machine), folder)
    return folder, {file.name: file for file in files}


def caption_of_equal_modes(folder, slow_sizes=()):
    """Return the caption for equal latency in both modes, except twice at `slow_sizes` (bytes)."""
    found = latency.small()
    tidy = latency.tidy(found)
    chases = tidy["experiment"] == "latency_by_size"
    factors = tidy.loc[chases, "factors"].map(json.loads)
    tidy.loc[chases, "value"] = factors.map(
        lambda own: (
            latency.latency_of(own["bytes"])
            * (2.0 if own["mode"] == "concurrent" and own["bytes"] in slow_sizes else 1.0)
        )
    )
    files = draw([latency.EXPERIMENTS[0]], tidy, latency.topology(found), folder)
    return next(f for f in files if f.kind == "table").sentence


def test_ratios_that_are_large_at_some_sizes_only_are_named(tmp_path):
    said = caption_of_equal_modes(tmp_path, [2**20, 2**22])
    assert "1.00 to 2.00 times the latency with mode serial over all sizes, and 1.00 times" in said
    assert "; the ratio is above 1.075 at 1 MiB and 4 MiB. Maximum: 2.00 (" in said
    assert "no ratio is clearly above" not in said


def test_what_does_not_part_is_said(tmp_path):
    said = caption_of_equal_modes(tmp_path)
    assert said.startswith(
        "Latency with mode concurrent is 1.00 times the latency with mode serial over all sizes, "
    )
    assert said.endswith("at the largest size; no ratio is clearly above 1.075.")


def test_a_curve_with_some_numbers_that_cannot_be_said_tells_the_reasons_of_those_alone(tmp_path):
    found = latency.small()
    tidy = latency.tidy(found)
    shares = tidy["factors"].map(lambda text: json.loads(text).get("share"))
    other = tidy["point"].map(tidy.loc[shares.notna()].set_index("point")["factors"].to_dict())
    kept = other.isna() | other.map(lambda text: '"share": 100' in str(text))
    tidy = tidy[(tidy["experiment"] == "loaded_latency") & kept]
    spec = next(one for one in latency.EXPERIMENTS if one["experiment"] == "loaded_latency")
    files = draw([spec], tidy, latency.topology(found), tmp_path)
    [table] = next(f for f in files if f.kind == "curve").tables
    assert table.notes
    assert not any("nan" in note for note in table.notes)
    assert not any("unloaded" in note for note in table.notes)


def test_modes_without_a_common_size_are_not_compared(tmp_path):
    found = latency.small()
    tidy = latency.tidy(found)
    factors = tidy["factors"].map(json.loads)
    sizes = sorted({own["bytes"] for own in factors if own.get("mode") == "serial"})
    small = set(sizes[: len(sizes) // 2])
    # Each mode has a value at one half of the sizes.
    other = factors.map(
        lambda own: "bytes" in own and (own["bytes"] in small) == (own.get("mode") == "serial")
    )
    tidy = tidy[~((tidy["experiment"] == "latency_by_size") & other)]
    files = draw([latency.EXPERIMENTS[0]], tidy, latency.topology(found), tmp_path)
    said = next(file for file in files if file.kind == "table").sentence
    assert "no latency was measured both with mode concurrent and with mode serial" in said.lower()

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict

import pytest
import synthetic
from lxml import etree
from table_figures import draw

from chaosity.errors import UserError
from chaosity.figures.bar_charts import draw_bar_chart
from chaosity.figures.figure_data_and_value_limits import (
    find_round_value_limits,
    select_figure_data,
)
from chaosity.figures.figure_spec import FigureSpec
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import topology_from_json

SVG = "{http://www.w3.org/2000/svg}"
BANDWIDTH = synthetic.BANDWIDTH


def heatmap(name, **keys):
    return {
        "name": name,
        "kind": "heatmap",
        "title": "Bandwidth",
        "load": "memory",
        "metric": BANDWIDTH,
        "rows": "initiator",
        "columns": "target",
        "where": {"initiator_kind": "node", "kernel": "triad"},
        **keys,
    }


def experiment(*figures, name="memory_bandwidth"):
    return {"experiment": name, "question": "How much?", "figures": list(figures)}


INTERFERENCE = {
    "name": "beside",
    "kind": "lines",
    "title": "Memory beside drives",
    "load": "memory",
    "metric": BANDWIDTH,
    "x": "drives",
    "series": "placement",
    "panels": "storage_node",
    "panels_title": "Drives of node",
}
KERNELS = {
    "name": "kernels",
    "kind": "bars",
    "title": "Kernels",
    "load": "memory",
    "metric": BANDWIDTH,
    "x": "kernel",
    "series": "initiator",
    "where": {
        "initiator_kind": "node",
        "relation": "same_node",
        "kernel": ["triad", "copy", "read"],
    },
}
STORAGE = {
    "name": "drives",
    "kind": "heatmap",
    "title": "Drives",
    "load": "storage",
    "metric": BANDWIDTH,
    "rows": "initiator",
    "columns": "target",
    "where": {"target_kind": "drive"},
}


def machine(**keys):
    failed = {
        "memory=node1+node2+triad": "killed",
        "memory=node3+node3+triad.storage=node3+node3drives2": "too slow",
    }
    given = {"failed": failed, "missing": ("memory=node3+node3+triad",), **keys}
    return synthetic.Machine("h", ((0, 1), (2, 3)), {0: 2, 1: 2, 2: 1, 3: 2}, **given)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    found = machine()
    experiments = [
        experiment(heatmap("nodes", source="figure 4")),
        experiment(INTERFERENCE, name="interference"),
        experiment(STORAGE, name="storage_bandwidth"),
        experiment({**KERNELS, "name": "kernels"}, name="memory_bandwidth"),
    ]
    files = draw(experiments, found.tidy(), found.topology(), folder)
    return folder, {file.name: file for file in files}


def titles(folder, name):
    """Text of every mark by its id."""
    root = etree.parse(folder / f"{name}.svg").getroot()
    return {
        mark.get("id"): mark.find(f"{SVG}title").text
        for mark in root.iter(f"{SVG}g")
        if mark.get("class") == "mark"
    }


def rows(folder, name):
    with (folder / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_figure_is_written_as_svg_png_and_csv(drawn):
    folder, files = drawn
    for name in files:
        assert {path.suffix for path in folder.glob(f"{name}.*")} == {".svg", ".png", ".csv"}
    assert (folder / "nodes.png").read_bytes().startswith(b"\x89PNG")
    listed = json.loads((folder / "figures.json").read_text())
    wanted = json.loads(json.dumps([asdict(file) for file in files.values()]))
    assert all(entry.pop("shown") for entry in wanted)
    assert listed == wanted


def test_numbers_of_bars_stand_in_a_column_beyond_all_intervals():
    """Behind the end of its interval, a number would read as the value of this end."""
    found = machine()
    spec = FigureSpec.from_yaml_entry("memory_bandwidth", KERNELS)
    table, topology = Measurements.from_table(found.tidy()), topology_from_json(found.topology())
    data = select_figure_data(spec, table, topology)
    limits = find_round_value_limits(BANDWIDTH, [data], with_intervals=True)
    figure, _ = draw_bar_chart(data, limits)
    [axes] = [each for each in figure.axes if each.get_xlabel()]
    [column] = {text.get_position()[0] for text in axes.texts}
    assert column > axes.get_xlim()[1] >= data.marks["high"].max() / limits.scale.factor


def test_every_cell_says_what_it_is(drawn):
    folder, _ = drawn
    found = titles(folder, "nodes")
    assert len(found) == 16
    pattern = (
        r"node0 -> node1: \d\d\.\d GB/s, 95 % interval \d\d\.\d to \d\d\.\d, n = 3 "
        r"\(triad, variant of STREAM\)"
    )
    assert re.fullmatch(pattern, found["nodes-cell-0-1"])
    assert found["nodes-cell-1-2"].startswith("node1 -> node2: failed in 3 replicates: killed")
    assert found["nodes-cell-3-3"].startswith("node3 -> node3: not measured yet")


def test_every_mark_of_lines_and_bars_says_what_it_is(drawn):
    folder, _ = drawn
    assert len(titles(folder, "beside")) == len(rows(folder, "beside"))
    assert len(titles(folder, "kernels")) == len(rows(folder, "kernels")) == 12
    assert any(
        text.startswith("node 2, kernel triad: ") for text in titles(folder, "kernels").values()
    )
    assert any("same package, drives = 2: " in text for text in titles(folder, "beside").values())


def test_the_csv_is_the_data(drawn):
    folder, _ = drawn
    table = {(row["initiator"], row["target"]): row for row in rows(folder, "nodes")}
    assert len(table) == 16
    tidy = machine().tidy()
    point = tidy[(tidy["point"] == "memory=node0+node1+triad")]
    assert float(table["node0", "node1"][f"median_{BANDWIDTH}"]) == point["value"].median()
    assert table["node0", "node1"]["replicates_valid"] == "3"
    assert float(table["node0", "node1"][f"interval_low_{BANDWIDTH}"]) < point["value"].median()
    failed = table["node1", "node2"]
    assert (failed["status"], failed["reason"]) == ("failed", "killed")
    assert failed[f"median_{BANDWIDTH}"] == ""


def test_failed_unmeasured_and_meaningless_cells_look_different(drawn, tmp_path):
    folder, _ = drawn
    states = {row["status"] for row in rows(folder, "nodes")}
    assert states == {"valid", "failed", "missing"}
    root = etree.parse(folder / "nodes.svg").getroot()

    def style(identity):
        return root.xpath(f"//*[@id='nodes-cell-{identity}']//*[local-name()='path']/@style")[0]

    assert "url(#nodes-" in style("1-2")  # the hatch
    assert "url(#" not in style("3-3")
    assert len({style("0-0"), style("1-2"), style("3-3")}) == 3
    # Local cells only: the others were never meant to be measured.
    spec = heatmap(
        "local", where={"kernel": "triad", "initiator_kind": "node", "relation": "same_node"}
    )
    draw([experiment(spec)], machine().tidy(), machine().topology(), tmp_path)
    table = {(row["initiator"], row["target"]): row for row in rows(tmp_path, "local")}
    assert table["node0", "node1"]["status"] == "absent"
    assert titles(tmp_path, "local")["local-cell-0-1"].endswith("not part of the experiment")


def test_unchanged_data_gives_equal_files(drawn, tmp_path):
    folder, _ = drawn
    found = machine()
    draw(
        [experiment(heatmap("nodes", source="figure 4"))], found.tidy(), found.topology(), tmp_path
    )
    for name in ("nodes.svg", "nodes.png", "nodes.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_drawings_need_nothing_from_outside_and_do_not_clash(drawn):
    folder, files = drawn
    seen = set()
    for name in files:
        root = etree.parse(folder / f"{name}.svg").getroot()
        identities = root.xpath("//@id")
        assert len(identities) == len(set(identities))
        assert not seen & set(identities)
        seen |= set(identities)
        links = root.xpath("//@*[name()='href' or name()='xlink:href']")
        assert all(link.startswith("#") and link[1:] in identities for link in links)


def test_packages_are_apart_and_drives_stand_by_node(drawn):
    folder, _ = drawn
    columns = list(dict.fromkeys(row["target"] for row in rows(folder, "drives")))
    assert columns == [name for node in range(4) for name in machine().drive_names(node)]
    root = etree.parse(folder / "nodes.svg").getroot()

    def left(identity):
        path = root.xpath(f"//*[@id='nodes-cell-{identity}']//*[local-name()='path']/@d")[0]
        return min(float(x) for x in re.findall(r"[ML] ([\d.]+)", path))

    width, gap = left("0-1") - left("0-0"), left("0-2") - left("0-1")
    assert gap > width + 1.0


def test_listed_names_stand_in_their_order(drawn):
    folder, _ = drawn
    assert list(dict.fromkeys(row["kernel"] for row in rows(folder, "kernels"))) == [
        *("triad", "copy", "read"),
    ]


def test_a_file_that_stands_in_is_said_in_title_and_text(tmp_path):
    found = synthetic.small()
    (file,) = draw(
        [experiment(STORAGE, name="storage_bandwidth")], found.tidy(), found.topology(), tmp_path
    )
    assert file.title == "Drives (file-backed)"
    assert "(file-backed)" in titles(tmp_path, "drives")["drives-cell-0-0"]
    assert re.fullmatch(r"1\.\d\d GB/s, .*, n = 3 \(node0 -> file0\)\.", file.sentence)


def test_one_replicate_has_no_interval(tmp_path):
    found = machine(replicates=1)
    file, *_ = draw([experiment(heatmap("nodes"))], found.tidy(), found.topology(), tmp_path)
    assert (
        "The values have no intervals, since each point has one replicate. "
        "2 of 16 cells have no value: " in file.sentence
    )
    text = titles(tmp_path, "nodes")["nodes-cell-0-0"]
    assert "no interval: n = 1" in text
    assert rows(tmp_path, "nodes")[0][f"interval_low_{BANDWIDTH}"] == ""


def test_figures_that_are_compared_share_limits_and_unit(tmp_path):
    found = machine()
    shared = [
        heatmap("nodes", colour_scale="memory"),
        heatmap("threads", where={"initiator_kind": "pu"}, colour_scale="memory"),
        heatmap("alone", where={"initiator_kind": "pu"}),
    ]
    draw([experiment(*shared)], found.tidy(), found.topology(), tmp_path)

    def colour(name):
        root = etree.parse(tmp_path / f"{name}.svg").getroot()
        style = root.xpath(f"//*[@id='{name}-cell-0-2']//*[local-name()='path']/@style")[0]
        return re.search(r"fill: (#\w+)", style).group(1)

    assert colour("threads") != colour("alone")


def test_a_figure_without_points_is_named_and_not_drawn(tmp_path):
    found = synthetic.small()
    spec = heatmap("packages", where={"initiator_kind": "package"})
    (file,) = draw([experiment(spec)], found.tidy(), found.topology(), tmp_path)
    assert (file.svg, file.problem) == (None, None)
    assert not list(tmp_path.glob("packages.*"))


def test_points_that_share_a_mark_are_a_problem_of_the_figure_not_of_the_report(tmp_path):
    found = machine()
    spec = heatmap("all", where={"initiator_kind": "node"}, title="All kernels")
    file, *_ = draw([experiment(spec)], found.tidy(), found.topology(), tmp_path)
    assert "9 points fall on the mark rows node0, columns node0" in file.problem
    assert "combine" in file.problem
    (file,) = draw(
        [experiment({**spec, "combine": "median"})], found.tidy(), found.topology(), tmp_path
    )
    assert file.problem is None


def test_an_unknown_column_names_those_that_are_known(tmp_path):
    found = machine()
    (file,) = draw(
        [experiment(heatmap("bad", rows="initator"))], found.tidy(), found.topology(), tmp_path
    )
    assert "unknown column initator" in file.problem
    assert "initiator" in file.problem


def test_a_level_of_points_that_a_host_does_not_have_is_no_error(tmp_path):
    found = machine()
    spec = heatmap("drives", where={"target_kind": "all_of_package", "queue_depth": 4})
    (file,) = draw([experiment(spec)], found.tidy(), found.topology(), tmp_path)
    assert (file.svg, file.problem) == (None, None)


def test_a_column_of_another_load_can_be_shown(tmp_path):
    found = machine(missing=())
    spec = {
        **INTERFERENCE,
        "name": "map",
        "kind": "heatmap",
        "rows": "initiator",
        "columns": "storage.target",
        "where": {"storage.target_kind": "drive"},
    }
    spec = {k: v for k, v in spec.items() if k not in ("x", "series", "panels", "panels_title")}
    (file,) = draw(
        [experiment(spec, name="interference")], found.tidy(), found.topology(), tmp_path
    )
    assert file.problem is None
    assert {row["storage.target"] for row in rows(tmp_path, "map")} == {
        name for node in range(4) for name in found.drive_names(node)[:1]
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"kind": "pie"}, "'pie' is not allowed"),
        ({"rows": None}, "rows"),
        ({"series": "placement"}, "unknown key 'series'"),
        ({"combine": "mean"}, "'mean' is not allowed"),
    ],
)
def test_a_wrong_description_is_an_error_that_names_the_figure(tmp_path, change, words):
    entry = {k: v for k, v in {**heatmap("nodes"), **change}.items() if v is not None}
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        draw([experiment(entry)], machine().tidy(), machine().topology(), tmp_path)
    assert "figure nodes" in str(caught.value)


def test_two_figures_of_one_name_are_an_error(tmp_path):
    twice = [experiment(heatmap("nodes")), experiment(heatmap("nodes"), name="other")]
    with pytest.raises(UserError, match="already has a figure of this name"):
        draw(twice, machine().tidy(), machine().topology(), tmp_path)


def test_two_hosts_in_one_table_are_an_error(tmp_path):
    tidy = machine().tidy()
    tidy.loc[0, "host"] = "other"
    with pytest.raises(UserError, match="several hosts"):
        draw([experiment(heatmap("nodes"))], tidy, machine().topology(), tmp_path)


def test_the_figures_of_the_experiments_are_described_rightly(root):
    from chaosity.checked_yaml_files import EXPERIMENTS, load_experiment
    from chaosity.figures.figure_spec import parse_figure_specs

    documents = [load_experiment(path.stem) for path in EXPERIMENTS.glob("*.yaml")]
    assert parse_figure_specs(documents)


def test_the_manifest_is_json_that_ends_in_a_newline(drawn):
    folder, _ = drawn
    text = (folder / "figures.json").read_text(encoding="utf-8")
    assert text.endswith("]\n")
    assert json.loads(text)[0]["source"] == "figure 4"

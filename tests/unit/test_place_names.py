"""The grammar of place names: each name that the project makes parses and comes back the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.components import SYSTEM_COMPONENT, make_component_documents
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, yaml_file_names
from chaosity.place_names import (
    PlaceName,
    access_in_words,
    initiator_to_target_name,
    node_name,
    nodes_name,
    package_name,
    parse_place_name,
    place_in_words,
    places_in_words,
    pu_name,
)
from chaosity.topology.topology_model import configuration_name
from chaosity.topology.topology_parts import CoreKind, OpenclDevice
from machines import OWN_TOPOLOGIES, shipped_topology

INDEX = st.integers(0, 999_999)
ONE = st.tuples(INDEX)
NODES = st.sets(st.integers(0, 300), min_size=1, max_size=9).map(sorted).map(tuple)
COUNT = st.integers(0, 999_999)
ADDRESS = st.from_regex(r"[A-Za-z0-9]+(-[A-Za-z0-9]+){0,5}", fullmatch=True)
NUMBERED = ("pu", "core", "l3", "node", "package", "core_kind")
GROUP = st.one_of(
    st.builds(PlaceName, st.sampled_from(NUMBERED), ONE),
    st.builds(PlaceName, st.just("core_kind"), word=st.sampled_from(("efficiency", "performance"))),
    st.just(PlaceName("machine")),
)
PART = st.builds(
    PlaceName,
    st.sampled_from(("threads", "packed", "spread")),
    count=COUNT,
    groups=GROUP.map(lambda group: (group,)),
)
INITIATOR = st.one_of(GROUP, PART, st.builds(PlaceName, st.just("nodes"), NODES))
OTHERS = st.builds(
    PlaceName,
    st.just("others"),
    groups=st.lists(GROUP, min_size=1, max_size=24).map(tuple),
    without=INITIATOR,
)
DEVICE = st.one_of(
    st.builds(PlaceName, st.sampled_from(("drive", "disk", "gpu")), address=ADDRESS),
    st.builds(PlaceName, st.sampled_from(("drive", "gpu", "file", "opencl")), ONE),
)
DRIVE_SET = st.one_of(
    st.builds(
        PlaceName,
        st.sampled_from(("node_drives", "package_drives")),
        ONE,
        st.none() | COUNT,
    ),
    st.builds(PlaceName, st.just("unknown_drives"), count=st.none() | COUNT),
    st.builds(PlaceName, st.just("nodes_drives"), NODES.filter(lambda nodes: len(nodes) > 1)),
    st.just(PlaceName("all_drives")),
)


@given(st.one_of(INITIATOR, OTHERS, DEVICE, DRIVE_SET))
def test_each_name_parses_back_to_its_parts(place: PlaceName):
    assert parse_place_name(str(place)) == place


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused_without_an_error(text: str):
    place = parse_place_name(text)
    assert place is None or parse_place_name(str(place)) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("l3_4", PlaceName("l3", (4,))),
        ("efficiency_cores", PlaceName("core_kind", word="efficiency")),
        ("kind0", PlaceName("core_kind", (0,))),
        ("nodes0-2,5", PlaceName("nodes", (0, 1, 2, 5))),
        ("node3drives2", PlaceName("node_drives", (3,), 2)),
        ("package0drives", PlaceName("package_drives", (0,))),
        ("nodes0-1drives", PlaceName("nodes_drives", (0, 1))),
        ("unknowndrives2", PlaceName("unknown_drives", count=2)),
        ("drive-0000-41-00-0", PlaceName("drive", address="0000-41-00-0")),
        (
            "node0_node1_without_nodes0-1",
            PlaceName(
                "others",
                groups=(PlaceName("node", (0,)), PlaceName("node", (1,))),
                without=PlaceName("nodes", (0, 1)),
            ),
        ),
        (
            "l3_0_l3_1_without_node0_packed6",
            PlaceName(
                "others",
                groups=(PlaceName("l3", (0,)), PlaceName("l3", (1,))),
                without=PlaceName("packed", count=6, groups=(PlaceName("node", (0,)),)),
            ),
        ),
    ],
)
def test_known_names(text: str, place: PlaceName):
    assert parse_place_name(text) == place
    assert str(place) == text


def test_a_list_of_nodes_may_be_written_in_other_ways():
    assert str(parse_place_name("nodes1,0")) == "nodes0-1"
    assert str(parse_place_name("node0-3")) == "nodes0-3"
    assert parse_place_name("node3").nodes_in_name == (3,)
    assert parse_place_name("node3drives2").nodes_in_name == (3,)
    assert parse_place_name("package3drives2").nodes_in_name == ()


@pytest.mark.parametrize(
    "text",
    [
        *["none", "node", "nodes", "nodes3-1", "nodes1,,2", "node1234567", "pu٣", "kind"],
        *["db_cores", "opencl0x"],
        *["machine_without_db-prod-17", "machine_without_drive-S0815", "uniform_all_of_acme"],
        *["node0_acme_without_pu0", "node0__without_pu0", "node0node1_packed3", "interleave"],
        *["same_node", "triad", "drive", "drive-", "alldrives2"],
        *("", "pu1\n", "drive-a b"),
    ],
)
def test_other_texts_are_not_names_of_places(text: str):
    assert parse_place_name(text) is None


@pytest.mark.parametrize("text", ["drive-0000-41-00-0", "drive-S0815", "disk-sdb", "gpu-0000-06"])
def test_names_of_devices_may_identify_the_host(text: str):
    assert parse_place_name(text).may_reveal_host


def test_names_from_numbers():
    assert (pu_name(17), node_name(3), package_name(1)) == ("pu17", "node3", "package1")
    assert nodes_name([3]) == "node3"
    assert nodes_name([3, 1, 0, 2]) == "nodes0-3"
    assert initiator_to_target_name(node_name(0), node_name(3)) == "node0->node3"
    groups = (PlaceName("node", (0,)), PlaceName("l3", (1,)))
    assert parse_place_name("node0_l3_1_without_pu0").groups == groups
    with pytest.raises(ValueError, match="a part is missing"):
        str(PlaceName("pu"))


def machines():
    """Each stored machine with all experiments, and one with several core kinds and a device."""
    every = yaml_file_names(EXPERIMENTS_FOLDER)
    for path in sorted(OWN_TOPOLOGIES.glob("*.xml")):
        found = shipped_topology(path.stem)
        linux = replace(found, host={**found.host, "operating_system": "Linux"})
        slow = [pytest.mark.thorough] if len(linux.drives) > 10 else []
        yield pytest.param(linux, every, id=path.stem, marks=slow)
    server = shipped_topology("epyc-7413-2s-nps4-30drives")
    device = OpenclDevice("opencl0", "platform", "device", "gpu", vendor="GenuineIntel", node=0)
    for count in (2, 3):
        kinds = tuple(
            CoreKind(index, server.pus[index::count], frequency_max_hertz=index + 1)
            for index in range(count)
        )
        changed = replace(server, core_kinds=kinds, opencl_devices=(device,))
        yield pytest.param(changed, ["unlike_cores", "gpu_and_cpu"], id=f"{count} core kinds")


@pytest.mark.parametrize(("topology", "experiments"), list(machines()))
def test_every_place_in_every_plan_parses(topology, experiments):
    host = PlannedHost("server", configuration_name(topology), topology)
    weights = dict.fromkeys((node.os_index for node in topology.memory_nodes), 1.0)
    names = set(make_component_documents(topology)) - {SYSTEM_COMPONENT}
    for point in plan_host(host, read_config(), experiments, lambda *_: weights).points:
        for load in point["loads"]:
            sides = [load["initiator"], load["target"], load.get("responder")]
            names |= {s["name"] for s in sides if s and s["kind"] not in ("policy", "none")}
    assert {name for name in names if str(parse_place_name(name)) != name} == set()


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "node3": "node 3",
        "nodes0,2-3": "nodes 0, 2 and 3",
        "node3drives": "the drives of node 3",
        "node3drives2": "the first 2 drives of node 3",
        "unknowndrives": "the drives of an unknown node",
        "node0_threads4": "4 threads of node 0",
        "machine_without_node0": "the machine without node 0",
        "drive-0000-41-00-0": "drive 0000:41:00.0",
        "disk-sdb": "disk sdb",
        "efficiency_cores": "efficiency cores",
        "package0->package1": "from package 0 to package 1",
        "link package0->package1": "the link from package 0 to package 1",
        "nodes1,5-7": "nodes 1, 5, 6 and 7",
        "nodes0-7": "nodes 0 to 7",
        "some other text": "some other text",
    }.items(),
)
def test_sentences_name_places_in_words(name, words):
    assert place_in_words(name) == words


def test_an_access_says_whose_memory_it_is():
    assert access_in_words("node1", "node3") == "node 1 to the memory of node 3"
    assert (
        access_in_words("package0", "nodes4-7") == "package 0 to the memory of nodes 4, 5, 6 and 7"
    )
    assert access_in_words("node1", "node3drives") == "node 1 to the drives of node 3"
    spread = "node 1 to all memory of the package (DRAM)"
    assert access_in_words("node1", "uniform_package_dram") == spread


def test_places_of_one_kind_are_listed_by_number():
    assert places_in_words(["node4", "node5", 6]) == "nodes 4, 5 and 6"
    assert places_in_words(["node4"]) == "node 4"
    assert places_in_words(["node1", "node2drives", "pu3"]) == (
        "node 1, the drives of node 2 and processing unit 3"
    )

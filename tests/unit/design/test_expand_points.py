"""Points of an experiment on a host, and drives that a user named for writing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from expansions import expand, memory_load, plan_of, tried
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.cpusets import parse_cpu_list
from chaosity.design.benchmark_templates import load_benchmark_of_each_category
from chaosity.design.host_plan import PlannedHost, plan_host, positions_in_random_order
from chaosity.design.samples import pick_evenly_spread
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.records.record_files import replicate_numbers
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive


@pytest.fixture(scope="module")
def plan(config, paper_host):
    """The plan of the server of document 000."""
    return plan_host(paper_host, config)


def of(plan, experiment):
    return [p for p in plan.points if p["experiment"] == experiment]


def names(plan, experiment):
    return [p["point"] for p in of(plan, experiment)]


def of_kind(points, load, initiator=None, target=None):
    found = []
    for point in points:
        for one in point["loads"]:
            if one["name"] == load and len(point["loads"]) == 1:
                right = initiator in (None, one["initiator"]["kind"])
                if right and target in (None, one["target"]["kind"]):
                    found.append(point)
    return found


def test_the_papers_server_is_mapped_whole(plan):
    memory, storage = of(plan, "memory_bandwidth"), of(plan, "storage_bandwidth")
    triad = [p for p in of_kind(memory, "memory", "node") if p["point"].endswith("+triad")]
    assert len(triad) == 8 * 8  # figure 4
    assert len(of_kind(memory, "memory", "package")) == 2 * 8
    assert len(of_kind(memory, "memory", "machine")) == 8
    assert len(of_kind(storage, "storage", target="drive")) == 8 * 30
    assert len(of_kind(storage, "storage", target="all_of_node")) == 8 * 8  # figure 5
    assert len(of_kind(storage, "storage", target="first_of_node")) == 8 * (2 * 1 + 6 * 2)
    assert len(of_kind(storage, "storage", target="all_of_nodes")) == 8 * (255 - 8)  # figure 6
    assert len({(p["experiment"], p["point"]) for p in plan.points}) == len(plan.points)
    assert "/dev/nvme" not in json.dumps(storage)  # no name that the kernel may change


def test_working_sets_exceed_the_caches_in_reach(plan, paper_host):
    for point in of(plan, "memory_bandwidth"):
        [load] = point["loads"]
        cpus = set(parse_cpu_list(load["initiator"]["cpus"]))
        caches = sum(d.size_bytes for d in paper_host.topology.l3_domains if cpus & set(d.cpus))
        word = next(w for w in load["command"] if w.startswith("--array-bytes="))
        assert int(word.partition("=")[2]) >= 4 * caches


def test_a_point_touches_its_components_alone(plan, paper_host):
    drives = paper_host.drives_to_measure(Path("results"))
    assert [drive["node"] for drive in drives].count(0) == 3
    drive = next(drive for drive in drives if drive["node"] == 3)
    storage = of(plan, "storage_bandwidth")
    touching = [p for p in storage if drive["component"] in p["components"]]
    # alone, in the prefixes of node 3, all of node 3, each set of nodes with node 3, and all
    assert 0 < len(touching) < len(storage)
    for point in storage:
        named = [d["component"] for load in point["loads"] for d in load["target"]["drives"]]
        assert set(named) <= set(point["components"])
        assert ("system" in point["components"]) and len(named) == len(set(named))


def test_names_of_points_are_short_enough_for_files(plan):
    for point in plan.points:
        assert len(f"{point['point']}.json") <= 255
        assert len({load["name"] for load in point["loads"]}) == len(point["loads"])


@given(st.lists(st.integers(1, 6), max_size=40), st.integers(0, 2**31))
def test_order_is_a_permutation_within_each_block(replicates, seed):
    orders = positions_in_random_order(replicates, seed)
    assert [len(own) for own in orders] == replicates
    assert [list(replicate_numbers({"orders": own}))[-1] for own in orders] == replicates
    before = 0
    for block in range(max(replicates, default=0)):
        places = [own[block] for own in orders if len(own) > block]
        assert sorted(places) == list(range(before, before + len(places)))
        before += len(places)
    assert orders == positions_in_random_order(replicates, seed)
    # With fewer replicates, the first blocks are the same.
    first = positions_in_random_order([min(number, 2) for number in replicates], seed)
    assert [own[:2] for own in orders] == first


def test_an_experiment_may_be_measured_more_often_than_the_others(config, paper_host):
    asked = {**config, "experiments": ["smt_siblings", "bandwidth_scaling"], "replicates": 3}
    plan = plan_host(paper_host, asked)
    summary = plan.summarize_plan()
    often, other = (summary["experiments"][name] for name in asked["experiments"])
    assert often["measurements"] == 6 * often["points"]
    assert other["measurements"] == 3 * other["points"]
    for key in ("measurements", "estimated_seconds"):
        assert summary[key] == pytest.approx(often[key] + other[key])
    # More replicates in the config count for all, and are no part of what a point is.
    more = plan_host(paper_host, {**asked, "replicates": 7}).points
    assert {len(point["orders"]) for point in more} == {7}
    assert [p["definition"] for p in more] == [p["definition"] for p in plan.points]


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
def test_counts_follow_from_the_machine(tmp_path_factory, config, packages, nodes, cores, pus):
    import subprocess

    path = tmp_path_factory.mktemp("made") / "machine.xml"
    shape = f"pack:{packages} numa:{nodes} core:{cores} pu:{pus}"
    subprocess.run(["lstopo", "--input", shape, "--of", "xml", str(path)], check=True)
    topology = discover_topology(str(path))
    plan = plan_of(topology, config, "memory_bandwidth")
    total = packages * nodes
    groups = {frozenset(p) for p in _initiator_sets(packages, nodes, cores, pus)}
    triad = [p for p in plan.points if p["point"].endswith("+triad")]
    assert len(triad) == len(groups) * total


def _initiator_sets(packages, nodes, cores, pus):
    """First unit of each node, then the first units of all cores of a node, package, machine."""
    unit = 0
    machine = []
    for _ in range(packages):
        package = []
        for _ in range(nodes):
            node = [unit + core * pus for core in range(cores)]
            unit += cores * pus
            yield [node[0]]
            yield node
            package += node
        yield package
        machine += package
    yield machine


DRIVES = {"category": "storage_bandwidth", "target": {"drives": {"each": "drive"}}}


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"initiator": {"names": ["node9"]}}, "no initiator 'node9'"),
        ({"initiator": {"names": ["nodes0-99"]}}, "no initiator 'nodes0-99'"),
        ({"initiator": {"same_as": "b.initiator"}}, "no earlier load has b.initiator"),
        ({"initiator": {}}, "give exactly one key that says what to select"),
        (
            {"initiator": {"each": "node", "in_each_set_of": "node"}},
            "in_each_set_of needs loads that run together",
        ),
        ({"target": {"names": ["node9"]}}, "no memory node 'node9'"),
        ({"target": {"drives": {"names": ["d9"]}}}, "no drive 'd9'"),
        ({"target": {"opencl": {"names": ["opencl1"]}}}, "no OpenCL device 'opencl1'"),
        ({"target": {"policies": ["canonnical"]}}, "'canonnical'.*did you mean canonical"),
        ({"kernel": ["trida"]}, "no kernel trida"),
        ({"vary": {"page": ["thp"]}}, "has no parameter 'page'.*did you mean pages"),
        ({"buffers": {"each": "node"}}, "only loads on drives"),
        (
            {**DRIVES, "vary": {"buffers": ["own"]}, "buffers": {"each": "node"}},
            "the key vary also has the key buffers",
        ),
        ({**DRIVES, "buffers": {"names": ["node9"]}}, "no memory node 'node9'"),
    ],
)
def test_what_a_host_or_a_benchmark_does_not_have_is_said(config, resources, load, message):
    with pytest.raises(UserError, match=message):
        expand(resources, config, tried(d={"memory": memory_load(**load)}))


def test_kernels_that_a_benchmark_lacks_become_a_note(config, paper_host):
    config = {**config, "benchmarks": {**config["benchmarks"], "memory_bandwidth": "stream"}}
    plan = plan_host(paper_host, config, ["memory_bandwidth"])
    assert any("since stream does not have them" in note for note in plan.notes)
    assert not any(name.endswith("+read") for name in names(plan, "memory_bandwidth"))


def test_two_silent_loads_are_left_out_with_a_note(config, resources):
    silent = load_benchmark_of_each_category(config)
    for benchmark in silent.values():
        benchmark.document.pop("progress", None)
    points, notes = expand(resources, config, load_experiment("interference"), **silent)
    assert points
    assert all(len(point["loads"]) == 1 for point in points)
    assert any("report no progress" in note for note in notes)


@given(st.lists(st.integers(), unique=True), st.integers(-2, 40))
def test_a_sample_is_evenly_spread(things, at_most):
    taken = pick_evenly_spread(things, at_most)
    assert len(taken) == min(len(things), max(at_most, 0))
    assert [one for one in things if one in taken] == taken
    if len(taken) > 1:
        assert (taken[0], taken[-1]) == (things[0], things[-1])
        places = [things.index(one) for one in taken]
        gaps = {second - first for first, second in itertools.pairwise(places)}
        assert max(gaps) - min(gaps) <= 1


def test_a_sample_of_an_experiment_is_said(config, paper_host):
    config = {**config, "experiments": ["interference"], "sample": {"interference": 10}}
    plan = plan_host(paper_host, config)
    assert len(names(plan, "interference")) == 10
    assert plan.notes[-1] == "interference: a sample of 10 of 144 points, evenly spread"
    with pytest.raises(UserError, match="did you mean interference"):
        plan_host(paper_host, {**config, "sample": {"interferenc": 10}})


def test_a_few_sets_of_nodes_reach_from_a_pair_to_all(config, paper_host):
    plan = plan_host(paper_host, config, ["storage_sample"])
    sets = [p["loads"][0]["target"] for p in of_kind(plan.points, "storage", "machine")]
    assert len(sets) == 8
    assert len(sets[0]["drives"]) == 7  # of nodes 0 and 1
    assert len(sets[-1]["drives"]) == 30  # all


def drive(number: int, serial: str | None, *, model: str | None = "ACME 1", namespace: int = 1):
    """The drive in a slot of its own; its namespaces share the number."""
    name, pci = f"nvme{number}n{namespace}", f"0000:{number:02x}:00.0"
    return NvmeDrive(name=name, pci=pci, serial=serial, model=model)


def writable(drives: list[NvmeDrive], *names: str, extra: tuple[str, ...] = ()) -> list[str]:
    """Serial numbers, or paths, of the drives that may be written to."""
    variables = {"chaosity_destructive_drives": [*names], "chaosity_extra_drives": [*extra]}
    host = PlannedHost("h", "nps1", Topology(drives=tuple(drives)), variables)
    planned = host.drives_to_measure(Path("results"))
    return [one.get("serial") or one["path"] for one in planned if one.get("destructive")]


# The serial number of a drive is the end of another one.
ENDS = [drive(1, "S64GNE0T123"), drive(2, "123"), drive(3, "3")]
# Two namespaces of one drive.
SPACES = [drive(1, "S1"), drive(1, "S1", namespace=2)]
# udev replaces some signs, and a serial number can have an underscore.
SIGNS = [drive(1, "A/B 7_x"), drive(2, "7_x"), drive(3, "x", model="ACME 1 A B 7")]
# A drive without a model or serial number has no link.
UNKNOWN = [drive(1, "S1", model=None), drive(2, None), drive(3, "")]


@pytest.mark.parametrize(
    ("drives", "name", "freed"),
    [
        (ENDS, "S64GNE0T123", "S64GNE0T123"),
        (ENDS, "nvme-ACME_1_S64GNE0T123", "S64GNE0T123"),
        (ENDS, "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123", "S64GNE0T123"),
        (ENDS, "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123_1", "S64GNE0T123"),
        (SIGNS[:2], "nvme-ACME_1_A_B_7_x", "A/B 7_x"),
        (SIGNS, "7_x", "7_x"),
        (UNKNOWN, "S1", "S1"),
    ],
)
def test_a_name_frees_one_drive(drives, name, freed):
    assert writable(drives, name) == [freed]


@pytest.mark.parametrize(
    ("drives", "name"),
    [
        (ENDS, "T123"),  # an end of a serial number
        (ENDS, "nvme-OTHER_S64GNE0T123"),  # another model
        (ENDS, "nvme-ACME_1_S64GNE0T1234"),
        (ENDS, "nvme-ACME_1_S64GNE0T123_2"),  # another namespace
        (ENDS, "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123-part1"),
        (ENDS, "/dev/disk/by-path/nvme-ACME_1_S64GNE0T123"),
        (ENDS, "/dev/nvme1n1"),
        (ENDS, "S64GNE0T123 "),
        (ENDS, "{{ x }}"),
        (ENDS, "/"),
        *((UNKNOWN, name) for name in ("nvme-_S1", "nvme-ACME_1_", "", "nvme-")),
    ],
)
def test_a_name_that_fits_no_drive_is_an_error(drives, name):
    with pytest.raises(UserError, match="names no drive of this host; give a drive's serial") as at:
        writable(drives, name)
    assert "host h, chaosity_destructive_drives" in str(at.value)
    assert ", ".join(each.serial for each in drives if each.serial) in str(at.value)


@pytest.mark.parametrize(
    ("drives", "name"),
    [
        (SPACES, "S1"),
        (SPACES, "nvme-ACME_1_S1_2"),
        ([drive(1, "0000"), drive(2, "0000", model="B")], "nvme-B_0000"),
        ([drive(1, "B_C", model="A"), drive(2, "C", model="A_B")], "nvme-A_B_C"),
        ([drive(1, "S_1"), drive(2, "S")], "nvme-ACME_1_S_1"),
    ],
)
def test_a_name_that_fits_several_drives_is_an_error(drives, name):
    with pytest.raises(UserError, match=r"can mean several drives \(nvme1n1, nvme"):
        writable(drives, name)


def test_other_block_devices_are_named_by_the_path_of_the_inventory():
    path = "/dev/disk/by-id/ata-ACME_S1"
    assert writable(ENDS, path, extra=(path, "/dev/sdb")) == [path]
    with pytest.raises(UserError, match="names no drive of this host"):
        writable(ENDS, "/dev/sdc", extra=(path,))


SERIALS = st.lists(st.text("01A_ ", min_size=1, max_size=4), min_size=1, max_size=5)


@given(SERIALS, st.text("01A_", min_size=1, max_size=4), st.text("01A_", max_size=2))
def test_no_name_frees_more_than_one_drive(serials, name, before):
    drives = [drive(number, serial) for number, serial in enumerate(serials)]
    for text in (name, f"nvme-ACME_1_{name}", f"nvme-{before}_{name}"):
        try:
            [found] = writable(drives, text)
        except UserError:
            continue
        assert found == text or text.startswith("nvme-ACME_1_")

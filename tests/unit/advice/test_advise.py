"""Advice names the best place that the true machine has, and says how sure it is."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chaosity import api
from chaosity.advice.machine_map import MachineMap
from chaosity.advice.open_map import map_of_results, open_map
from chaosity.advice.requests import Place, Request, RunningLoad, parse_running_load
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.cli.weights import placement_argument_parser
from chaosity.components import record_component_state
from chaosity.cpusets import format_cpu_list
from chaosity.documents.machines import Fault
from chaosity.errors import UserError
from chaosity.place.__main__ import request_from_arguments
from chaosity.place.page_placement import POLICIES, uniform_shares
from chaosity.simulation.simulated_loads import processing_units_of_load
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fit_results import faults_of_findings
from chaosity.twin.fitted_description import FittedParameter, fitted_machine_of_description
from chaosity.twin.machine_parameters import PARAMETERS
from chaosity.twin.model_values import ALL_KINDS_OF_VALUES
from machines import SHIPPED_MACHINES, configuration_folder, planned, run_chaosity, simulated

EIGHT_NODES = (
    SHIPPED_MACHINES / "epyc_7413.yaml",
    SHIPPED_MACHINES / "topologies/epyc_7413_nps4.xml",
)


@pytest.fixture(scope="module")
def server() -> api.HostMap:
    """A server of which all numbers are known: 8 nodes with 6 cores, 30 drives."""
    return api.open_machine(*EIGHT_NODES)


def best(server: api.HostMap, **request: object) -> api.AdvisedPlace:
    return server.advise(Request(**request)).places[0]  # type: ignore[arg-type]


def running(server: api.HostMap, text: str) -> RunningLoad:
    return parse_running_load(text, server.topology, server.machine.drives, "beside")


def test_a_latency_bound_program_gets_a_node_of_its_own(server: api.HostMap) -> None:
    place = best(server, cores=6, goal="latency", beside=(running(server, "node0:node1"),))
    assert place.nodes == tuple(place.place.shares)
    assert not {0, 1} & {*place.nodes}
    assert place.latency.median == pytest.approx(95, rel=0.01)  # as described, beyond the caches


def test_a_program_that_needs_bandwidth_uses_more_controllers_than_its_own(
    server: api.HostMap,
) -> None:
    one = server.expected(Place((0, 2, 4, 6, 8, 10), {0: 1.0}))
    place = best(server, cores=6)
    assert place.bandwidth.median > 2 * one.median
    assert "--interleave=" in place.commands["numactl"]
    assert "taskset" not in place.commands  # it would leave the pages to the first touch
    assert len(place.place.shares) > 1


def test_the_idle_memory_of_a_node_with_busy_cores_is_used(server: api.HostMap) -> None:
    beside = tuple(running(server, f"node{node + 1}:node{node}") for node in range(3))
    place = best(server, cores=6, beside=beside)
    assert {*place.place.shares} == {3, 4, 5, 6, 7}
    assert not {0, 1, 2, 3} & {*place.nodes}


def test_drives_are_read_from_the_node_that_has_them(server: api.HostMap) -> None:
    drive = next(name for name, facts in server.machine.drives.items() if facts["node"] == 5)
    place = best(server, cores=2, goal="drives", drives=(drive,))
    assert place.nodes == (5,)
    assert place.place.drives == (drive,)
    assert place.bandwidth.median == pytest.approx(6.9e9, rel=0.01)
    assert place.bandwidth.limited_by == ("drives",)
    alone = server.expected(Place(server.topology.nodes[0].cpus, {0: 1.0}))
    assert alone.limited_by == ("memory of node 0",)  # one, and so not "nodes"


def test_the_cached_part_of_a_scan_ends_when_the_drives_end(server: api.HostMap) -> None:
    advice = server.advise(Request(cores=6, goal="drives", drives=4))
    assert advice.cached is not None
    place, cached = advice.places[0].place, advice.cached
    machine = server.machine
    memory = machine.loads("memory", Place(place.cpus, cached.pages))
    drives = machine.loads("drives", place, metric="processing_throughput_bytes_per_second")
    rates = [machine.predicted_value(memory, drives), machine.predicted_value(drives, memory)]
    assert cached.share / rates[0] == pytest.approx((1 - cached.share) / rates[1])
    assert cached.scan_bytes_per_second == pytest.approx(sum(rates))
    # Without the part in memory, the drives alone are slower.
    assert cached.scan_bytes_per_second > machine.predicted_value(drives, [])


def test_a_number_that_no_measurement_determines_is_named_and_widens_the_interval() -> None:
    """The server has a limit of L3 domains that memory alone never fills, but a scan does."""
    topology = SHIPPED_MACHINES / "topologies/epyc_7413_nps4.xml"
    truth = api.open_machine(SHIPPED_MACHINES / "epyc_7413_nps4.yaml", topology)
    known = truth.machine.fitted.values
    [domain] = [own for own in known if own.key == "l3_domain_bytes_per_second"]
    values = {own: value for own, value in known.items() if own is not domain}
    parameters = [
        FittedParameter(own, values.get(own), None, None, 3e10 if own is domain else None, 1)
        for own in PARAMETERS
    ]
    fitted = replace(
        truth.machine.fitted,
        parameters=tuple(parameters),
        values=values,
        covariance=np.eye(len(values)) * 1e-18,
        errors={ALL_KINDS_OF_VALUES: 1e-3},
    )
    server = api.HostMap(MachineMap(truth.topology, fitted, truth.machine.drives))
    request = Request(cores=6, goal="drives", drives=4)
    cached, true = (each.advise(request).cached for each in (server, truth))
    assert cached is not None
    assert true is not None
    assert cached.scan_interval
    assert cached.share_interval
    assert cached.scan_interval[0] < true.scan_bytes_per_second < cached.scan_interval[1]
    assert cached.share_interval[0] < true.share < cached.share_interval[1] <= 1
    assert domain.name in cached.undetermined
    assert true.scan_interval is None  # a description without intervals
    assert true.undetermined == {}


def test_the_line_of_place_does_what_is_advised(server: api.HostMap) -> None:
    requests = [{"cores": 6}, {"cores": 2, "goal": "latency"}, {"cores": 7, "partitioned": True}]
    for request in requests:
        place = best(server, **request)
        words = shlex.split(place.commands["place"])
        assert words[:2] == ["chaosity", "place"]
        parsed = request_from_arguments(placement_argument_parser().parse_args(words[2:]))
        assert parsed.command == ("PROGRAM",)
        assert parsed.cpus == frozenset(place.place.cpus)
        assert parsed.workers == place.nodes
        policy = POLICIES[parsed.policy]
        wanted = parsed.shares or (uniform_shares(parsed.workers) if policy.shares else {})
        assert wanted == pytest.approx(dict(place.place.shares))


def test_an_advised_place_can_be_named_beside_the_next_program(server: api.HostMap) -> None:
    first = best(server, cores=3)
    nodes = format_cpu_list(first.place.shares)
    kind = "node" if len(first.place.shares) == 1 else "nodes"
    text = f"{format_cpu_list(first.place.cpus)}:{kind}{nodes}"
    known = running(server, text)
    assert known.place == first.place
    second = best(server, cores=3, beside=(known,))
    assert not {*first.place.cpus} & {*second.place.cpus}


def test_alike_cores_are_asked_once_with_the_same_result(server: api.HostMap) -> None:
    model, draw = server.machine.model, random.Random(2)
    names = ("node1", "node2:node6:triad:40", "3:node4drives", "nodes6-7:nodes0-3:copy")
    for cores in (1, 7, 20, 35):
        beside = server.machine.running_loads(
            [running(server, text) for text in draw.sample(names, 2)]
        )
        units = [core.cpus[0] for core in server.topology.cores][:cores]
        shares = dict.fromkeys(draw.sample(range(8), 3), 1 / 3)
        busy = {unit for load in beside for unit in processing_units_of_load(load)}
        own = server.topology.core_of_pu
        free = tuple(unit for unit in units if busy.isdisjoint(own[unit].cpus))
        place = Place(free or (90,), shares)
        loads = server.machine.loads("program", place, "triad")
        slowly = model.model.noiseless_results([*loads, *beside])
        quickly = model.results(loads, beside)
        for name, value in slowly.items():
            expected = pytest.approx(value.counted_bytes_per_second)
            assert quickly[name].counted_bytes_per_second == expected
        assert model.rate(loads, beside) == pytest.approx(
            sum(slowly[load["name"]].counted_bytes_per_second for load in loads)
        )


def test_hbm_is_used_if_it_is_faster() -> None:
    topology = SHIPPED_MACHINES / "topologies/xeon_max_9480_snc4.xml"
    server = api.open_machine(SHIPPED_MACHINES / "xeon_max_9480_snc4.yaml", topology)
    place = best(server, cores=56, memory_bytes=16 << 30)
    kinds = {server.topology.find_node(node).kind for node in place.place.shares}  # type: ignore[union-attr]
    assert kinds == {"HBM"}


def test_a_cap_of_a_pair_slows_only_what_reaches_it(server: api.HostMap) -> None:
    machine = replace(server.machine, slow_rates={(0, 1): 3.0e10})
    one = machine.loads("program", Place((0,), {1: 1.0}))
    assert machine.predicted_value(one, []) == server.machine.predicted_value(one, [])
    six = machine.loads("program", Place((0, 2, 4, 6, 8, 10), {1: 1.0}))
    assert machine.predicted_value(six, []) == 3.0e10
    # Half of the accesses take this way.
    machine = replace(server.machine, slow_rates={(0, 1): 1.0e10})
    both = machine.loads("program", Place((0, 2, 4, 6, 8, 10), {0: 0.5, 1: 0.5}))
    assert machine.predicted_value(both, []) == 2.0e10


def test_no_place_on_one_node_is_better(server: api.HostMap) -> None:
    draw = random.Random(1)
    names = ("node1", "node2:node6:triad", "3:node4drives", "node7:node7:copy:50")
    for _ in range(6):
        beside = tuple(running(server, text) for text in draw.sample(names, 2))
        request = Request(cores=draw.randint(1, 6), memory_bytes=1 << 30, beside=beside)
        busy = {unit for each in beside for unit in each.place.cpus}
        got = server.advise(request).places[0].bandwidth.median
        for node in server.topology.initiator_nodes:
            units = [core.cpus[0] for core in server.topology.cores if node.os_index in core.nodes]
            free = [unit for unit in units if unit not in busy][: request.cores]
            if len(free) == request.cores:
                place = Place(tuple(sorted(free)), {node.os_index: 1.0})
                alone = server.expected(place, beside=beside).median
                assert got >= alone * 0.98


def test_a_slow_link_counts_although_the_other_direction_has_no_known_limit() -> None:
    fault: Fault = {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.4}
    # The links of the nodes limit what one direction gets, and a slow link the other.
    links = {
        "node_to_package_bytes_per_second": 1.2e10,
        "package_to_package_bytes_per_second": 2.6e10,
    }
    host = planned(
        "two_packages",
        faults=[fault],
        all_points=True,
        change={"links": links},
        experiments=["memory_bandwidth", "package_bandwidth"],
    )
    points, table = list(host.points), host.table_of_records(1)
    faults = faults_of_findings(analyse_host(table, host.component_facts), host.topology)
    fitted = fit_machine(table, points, host.topology, faults)
    known = map_of_results(table, points, host.topology, fitted)
    truth = MachineMap(
        host.topology, fitted_machine_of_description(host.machine, host.topology, "truth")
    )
    package0 = tuple(core.cpus[0] for core in host.topology.cores if core.package == 0)
    far = dict.fromkeys(host.topology.packages[1].nodes, 1 / 2)
    values = [
        machine.predicted_value(machine.loads("program", Place(package0, far)), [])
        for machine in (known, truth)
    ]
    assert values[0] == pytest.approx(values[1], rel=0.03)
    assert values[1] == pytest.approx(0.4 * 2.6e10, rel=0.01)  # and some hits in caches


# tests/golden/advise.txt has more refused requests.
@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"memory_bytes": 0}, "0 bytes are requested"),
        ({"goal": "latencies"}, "no goal"),
        ({"kernel": "blur"}, "no kernel"),
        ({"drives": 2}, "the goal is bandwidth"),
        ({"goal": "drives", "drives": ()}, "the goal is drives"),
        ({"beside": (RunningLoad(Place((999,), {0: 1.0})),)}, "no processing units 999"),
        ({"beside": (RunningLoad(Place((0,), {99: 1.0})),)}, "node 99 has no memory"),
        ({"beside": (RunningLoad(Place((0,), {0: 0.3})),)}, "do not add up to 1"),
    ],
)
def test_what_the_machine_lacks_is_refused(
    server: api.HostMap, request_: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        best(server, **request_)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a server whose drives were not measured, with the model that was fitted."""
    made = configuration_folder(simulated("two_packages", ["memory_bandwidth", "latency_matrix"]))
    folder = shutil.copytree(made, tmp_path_factory.mktemp("fitted") / "server" / "nps1")
    api.open_map(folder)
    return Path(folder)


@pytest.fixture
def measured(fitted: Path, tmp_path: Path) -> Path:
    """A copy of these results."""
    return Path(shutil.copytree(fitted, tmp_path / "server" / "nps1"))


def test_measured_values_and_the_kept_model_are_those_of_the_results(measured: Path) -> None:
    (measured / "model.json").unlink()
    first = api.open_map(measured)
    again = api.open_map(measured)
    assert first.bandwidth(0, 0) == again.bandwidth(0, 0) is not None
    assert first.latency(0, 1) is not None
    assert first.drive_bandwidth(0, "drive-0000-01-00-0") is None
    assert "server" in first.advise(Request(cores=2)).places[0].commands["slurm"]
    places = [each.advise(Request(cores=2)).places[0] for each in (first, again)]
    assert places[0].place == places[1].place
    ends = [(own.low, own.high) for each in places if (own := each.bandwidth)]
    assert np.allclose(ends[0], ends[1], rtol=1e-3)  # the file has five digits
    assert first.stale_components == ()
    with pytest.raises(UserError, match="1 drive requested, the host has 0"):
        first.advise(Request(goal="drives", drives=1))


@pytest.mark.parametrize("change", ["{", '{"of_results": 1}', "machine", "errors"])
def test_a_damaged_model_is_fitted_again(measured: Path, change: str) -> None:
    told: list[str] = []
    kept = measured / "model.json"
    document = json.loads(kept.read_text())
    if change == "machine":
        document["machine"] = {}
    elif change == "errors":
        document["machine"]["fitted"]["errors"] = {}
    kept.write_text(change if change.startswith("{") else json.dumps(document))
    open_map(measured, told.append)
    open_map(measured, told.append)
    assert len(told) == 1


def test_a_component_that_changed_since_makes_the_map_stale(measured: Path) -> None:
    assert "outdated" not in run_chaosity("advise", measured, "--cores", "2")
    path = measured / "components/node0.json"
    changed = {**json.loads(path.read_text()), "memory_bytes": 1}
    path.write_text(json.dumps(changed))
    record_component_state(path)
    text = run_chaosity("advise", measured, "--cores", "2")
    assert "The map is outdated: node0 changed since the measurement" in text
    found = json.loads(run_chaosity("advise", measured, "--cores", "2", "--json"))
    assert found["stale_components"] == ["node0"]
    assert api.open_map(measured).stale_components == ("node0",)


def test_what_reads_unusable_results_says_so_before_any_number(measured: Path) -> None:
    """Other programs disturbed most replicates; the report says the same sentence."""
    table = measured / "measurements.parquet"
    rows = Measurements.read(table).rows
    disturbed = (rows["replicate"] > 1).map({True: "disturbed", False: None}).astype("string")
    write_parquet_table(rows.assign(remarks=disturbed), table)
    reason = analyse_host(Measurements.read(table)).unusable
    assert "67 %" in reason
    server = api.open_map(measured)
    assert server.unusable == reason
    words = {
        "advise": ["--cores", "2"],
        "predict": ["--with", f"memory_bandwidth/{first_point(measured)}"],
    }
    for command, options in words.items():
        text = run_chaosity(command, measured, *options)
        assert "GB/s" not in text[: text.index(reason)]
        found = json.loads(run_chaosity(command, measured, *options, "--json"))
        assert found["unusable"] == reason
    text = run_chaosity("fit", measured)
    assert "GB/s" not in text[: text.index(reason)]


def first_point(folder: Path) -> str:
    return min(path.stem for path in (folder / "points/memory_bandwidth").iterdir())


def test_what_no_measurement_tells_is_not_answered(tmp_path: Path) -> None:
    made = configuration_folder(simulated("two_packages", ["memory_bandwidth"]))
    server = api.open_map(shutil.copytree(made, tmp_path / "nps1"))
    place = best(server, cores=2)
    assert place.bandwidth is not None
    assert place.latency is None
    with pytest.raises(UserError, match="no valid measurement depends on latency"):
        best(server, cores=2, goal="latency")

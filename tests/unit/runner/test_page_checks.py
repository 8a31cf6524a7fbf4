"""Pages in shares: judged by the kernel's account, and by the last look where they move."""

from __future__ import annotations

import pytest

from chaosity.errors import MeasurementError
from chaosity.runner import load_process, record_checks
from chaosity.runner.guardian_process import guarded
from chaosity.runner.point_measurement import check_free_memory, memory_shares_by_node

MIB = 2**20


def placed(make_point, wanted, seen, **placement):
    """The check of a load whose pages the kernel saw on nodes, in MiB."""
    [load] = make_point(memory_bytes=64 * MIB)["loads"]
    load["placement"] |= {"shares": wanted, "memory_nodes": [0, 1], "settles": False, **placement}
    by_node = {node: size * MIB for node, size in seen.items()}
    return record_checks.check_pages(
        {**load, "placement_seen": {"threads": [], "memory_bytes_by_node": by_node}}
    )


@pytest.mark.parametrize(
    ("seen", "passed"),
    [
        ({"0": 75, "1": 25}, True),
        ({"0": 76, "1": 24}, True),
        ({"0": 77.5, "1": 22.5}, False),
        ({"0": 100}, False),
        ({"0": 75, "1": 24, "2": 1}, True),
        ({"0": 74, "1": 23, "2": 3}, False),
    ],
)
def test_every_node_has_its_share_within_two_per_cent(make_point, seen, passed):
    found = placed(make_point, {"0": 0.75, "1": 0.25}, seen)
    assert found["passed"] is passed
    assert found["decisive"]


def test_the_node_with_the_largest_deviation_is_named(make_point):
    found = placed(make_point, {"0": 0.75, "1": 0.25}, {"0": 50, "1": 40, "2": 10})
    assert found["detail"].startswith("node 0 has 50.00 % of")
    assert "requested: 75.00 %" in found["detail"]


def test_where_pages_move_only_foreign_nodes_fail(make_point):
    wanted = {"0": 0.5, "1": 0.5}
    assert placed(make_point, wanted, {"0": 99, "1": 1}, settles=True)["passed"]
    assert not placed(make_point, wanted, {"0": 50, "2": 50}, settles=True)["passed"]


def test_where_the_kernel_decides_only_nodes_count(make_point):
    assert placed(make_point, None, {"0": 3, "1": 97})["passed"]
    assert not placed(make_point, None, {"0": 3, "3": 97})["passed"]


def test_needed_memory_follows_the_shares(make_point):
    assert memory_shares_by_node({"memory_nodes": [0, 3]}) == {0: 0.5, 3: 0.5}
    shares = {"memory_nodes": [0, 3], "shares": {"0": 0.9, "3": 0.1}}
    assert memory_shares_by_node(shares) == {0: 0.9, 3: 0.1}
    point = make_point(memory_bytes=1024)
    point["loads"][0]["placement"] |= {"shares": {"77": 1.0}}
    with pytest.raises(MeasurementError, match="node 77 has no memory"):
        check_free_memory(point)


@pytest.mark.alone
@pytest.mark.parametrize("settles", [True, False])
def test_moving_pages_are_observed_again_before_the_stop(
    make_point, tmp_path, monkeypatch, settles
):
    """The first look sees all on node 0, any later one has them moved to node 1."""
    looks = iter([{"0": 4096}] + [{"1": 4096}] * 99)
    monkeypatch.setattr(
        load_process.observed_placement, "read_process_memory", lambda *_: next(looks)
    )
    [spec] = make_point()["loads"]
    spec["placement"] |= {"settles": settles}
    with guarded(lambda: None) as guardian:
        load = load_process.LoadProcess(spec, tmp_path, guardian)
        load.start_process(lock=2)  # any open file: there is nobody to keep away
        load.wait_until_ready(20)
        load.release_from_barrier()
        load.send_stop_signal()
        load.wait_for_end_or_kill()
    found = load.load_record()["placement_seen"]
    if settles:
        assert found["memory_bytes_by_node_at_first"] == {"0": 4096}
        assert found["memory_bytes_by_node"] == {"1": 4096}
    else:
        assert found["memory_bytes_by_node"] == {"0": 4096}
        assert "memory_bytes_by_node_at_first" not in found

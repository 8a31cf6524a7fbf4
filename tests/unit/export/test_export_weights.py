"""Weights of a host: each node, each package, all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.export.formats import interleave_weights_of_host
from chaosity.export.main_matrices import read_measured_host
from table_rows import measured

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"
HBM = EPYC.with_name("xeon-max-2s-hbm-flat.xml")


def near_and_far(initiator: int, target: int) -> float:
    return 40e9 if initiator == target else 30e9 if initiator // 4 == target // 4 else 10e9


def test_nodes_without_units_get_pages_and_are_no_workers(tmp_path):
    folder = measured(HBM, tmp_path / "r", lambda i, j: 80e9 if j >= 2 else 40e9)
    found = interleave_weights_of_host(read_measured_host(folder))
    assert set(found.sets) == {"node0", "node1", "all"}
    assert found.sets["all"].kernel_weights == {0: 1, 1: 1, 2: 2, 3: 2}


def test_a_worker_set_with_a_failed_path_is_left_out(tmp_path):
    def value(initiator: int, target: int) -> float | None:
        return None if (initiator, target) == (3, 0) else near_and_far(initiator, target)

    found = interleave_weights_of_host(read_measured_host(measured(EPYC, tmp_path / "r", value)))
    assert set(found.left_out) == {"node3", "package0", "all"}
    assert "from node 3 to node 0" in found.left_out["all"]
    assert "package1" in found.sets


def run(*arguments: str) -> str:
    found = CliRunner().invoke(chaosity, ["export", "weights", *arguments])
    if found.exception:
        raise found.exception
    return found.stdout


def test_the_name_of_a_folder_is_in_a_comment_and_no_command(tmp_path):
    folder = measured(EPYC, tmp_path / "a\nreboot", near_and_far)
    lines = run(str(folder), "--dwp", "1").splitlines()
    assert f"chaosity export weights '{tmp_path}/a reboot' --dwp 1" in "\n".join(lines[:3])
    assert all(line[:1] in ("", "#") or line.split()[0] in ("echo", "numactl") for line in lines)


def test_without_a_pair_of_nodes_there_are_no_weights(tmp_path):
    folder = measured(EPYC, tmp_path / "r", latency=lambda i, j: 80.0)
    with pytest.raises(UserError, match="no bandwidth from a node"):
        run(str(folder))

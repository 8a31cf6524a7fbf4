"""ReFrame reads the exported references, and judges values by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.export.text_formats import prediction_limits
from chaosity.statistics.estimates_and_ratios import Estimate
from table_rows import BANDWIDTH, folder_of, rows, table, whole_map

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"
CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class ChaosityMap(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "cat"
    executable_opts = [{values!r}]
    reference = {{"$ref": "references.yaml"}}

    @sanity_function
    def has_values(self):
        return sn.assert_found("GB/s", self.stdout)

    @run_before("performance")
    def read_values(self):
        for line in open({values!r}):
            name, value, unit = line.split()
            of_line = sn.extractsingle(name + r" (\\S+)", self.stdout, 1, float)
            self.perf_variables[name] = sn.make_performance_function(of_line, unit)
"""


def exported(folder: Path) -> str:
    found = CliRunner().invoke(chaosity, ["export", "reframe", str(folder)])
    assert found.exit_code == 0, found.output
    return found.output


def judged(folder: Path, values: dict[str, tuple[float, str]]) -> tuple[int, str]:
    """Exit status and output of ReFrame, whose test reports these values."""
    lines = [f"{name} {value} {unit}\n" for name, (value, unit) in values.items()]
    (folder / "values").write_text("".join(lines))
    (folder / "check.py").write_text(CHECK.format(values=str(folder / "values")))
    command = ["reframe", "-c", "check.py", "--prefix", "run", "-r", "--performance-report"]
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_reframe_accepts_the_map_itself_and_refuses_a_slow_node(tmp_path):
    text = exported(whole_map(EPYC, tmp_path / "r"))
    (tmp_path / "references.yaml").write_text(text)
    references = yaml.safe_load(text)["ChaosityMap"]["*"]
    assert len(references) == 64 + 64 + 8 * 30
    same = {name: (value, unit) for name, (value, _, _, unit) in references.items()}
    assert same["memory_bandwidth_node0_node4"] == (20.0, "GB/s")
    assert same["memory_latency_node0_node0"] == (96.0, "ns")
    status, said = judged(tmp_path, same)
    assert status == 0, said
    status, said = judged(tmp_path, same | {"memory_bandwidth_node2_node2": (32.0, "GB/s")})
    assert status == 1 and "memory_bandwidth_node2_node2=32.0" in said, said


def test_limits_hold_a_further_measurement_of_the_same_host():
    """The interval of three values in logarithms, times the square root of four."""
    low, high = prediction_limits(Estimate(100.0, 98.0, 102.0, 3))
    assert (low, high) == pytest.approx((0.98**2 - 1.0, 1.02**2 - 1.0))


def test_values_without_an_interval_have_no_reference(tmp_path):
    single = table(rows(lambda i, j: 30e9, [0], [0], BANDWIDTH, replicates=1))
    arguments = ["export", "reframe", str(folder_of(EPYC, single, tmp_path / "r"))]
    found = CliRunner().invoke(chaosity, arguments)
    assert isinstance(found.exception, UserError)
    assert "no value has an interval" in str(found.exception)


def test_imprecise_values_are_named_and_have_no_reference(tmp_path):
    """Two replicates that differ by a fifth say little, without other cells."""
    two = table(rows(lambda i, j: 30e9, [0], [0], BANDWIDTH, replicates=2))
    two.loc[two["replicate"] == 2, "value"] *= 1.2
    text = exported(folder_of(EPYC, two, tmp_path / "r"))
    assert yaml.safe_load(text) == {"ChaosityMap": {"*": {}}}
    assert "# Too imprecise, measure again: memory_bandwidth_node0_node0\n" in text

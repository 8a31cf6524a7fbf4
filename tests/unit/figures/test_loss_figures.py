"""Test bars of cores and a device, alone and together, drawn by the experiment's YAML."""

from __future__ import annotations

import json

import pytest
from lxml import etree

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_files import draw_figures
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from table_rows import rows, table

EXPERIMENT = "gpu_and_cpu"
SVG = "{http://www.w3.org/2000/svg}"
BESIDE = "device=pu0+opencl0.memory=pu1+node0+triad"


def load(point, name, initiator, target, value, **factors):
    return rows(
        lambda i, j: value,
        [0],
        [0],
        experiment=EXPERIMENT,
        point=point,
        load=name,
        initiator=initiator,
        initiator_kind="pu",
        target=target,
        factors=json.dumps(factors),
    )


@pytest.fixture
def drawn(tmp_path):
    """Together, the cores reach 60 % and the device 75 % of what they reach alone."""
    both = {"device": "opencl0", "cores": "pu1"}
    tidy = table(
        load("memory", "memory", "pu1", "node0", 40e9, device="alone", cores="pu1"),
        load(BESIDE, "memory", "pu1", "node0", 24e9, **both),
        load(BESIDE, "device", "pu0", "opencl0", 30e9, **both),
        load("device", "device", "pu0", "opencl0", 40e9, device="opencl0", cores="alone"),
    )
    measured = Measurements.from_table(tidy)
    files = draw_figures([load_experiment(EXPERIMENT)], measured, Topology(), tmp_path)
    assert [file.problem for file in files] == [None, None]
    return tmp_path, {file.name: file for file in files}


@pytest.mark.parametrize(
    ("side", "loss", "beside"),
    [("cores", ": 0.60 (", "OpenCL device 0"), ("device", ": 0.75 (", "processing unit 1")],
)
def test_each_side_has_a_bar_alone_a_bar_together_and_its_loss(drawn, side, loss, beside):
    folder, files = drawn
    assert loss in files[f"gpu_and_cpu_{side}"].sentence
    root = etree.parse(folder / f"gpu_and_cpu_{side}.svg").getroot()
    marks = root.xpath("//*[@class='mark']")
    alone, together = [mark.find(f"{SVG}title").text for mark in marks]
    assert "alone" in alone
    assert beside in together

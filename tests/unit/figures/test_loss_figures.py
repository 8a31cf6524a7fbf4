"""Test bars of cores and a device, alone and together, drawn by the experiment's YAML."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import synthetic
from lxml import etree
from table_figures import draw

from chaosity.checked_yaml_files import load_experiment

EXPERIMENT = "gpu_and_cpu"
SVG = "{http://www.w3.org/2000/svg}"
BESIDE = "device=pu0+opencl0.memory=pu1+node0+triad"


def table(cores, device):
    """Return a table of cores and a device; together they reach these shares of their values."""
    tidy = synthetic.small().tidy()
    rows = tidy[tidy["experiment"] == "memory_bandwidth"]
    rows = rows[rows["point"] == rows["point"].iloc[0]]

    def load(point, name, initiator, target, share, **factors):
        return rows.assign(
            experiment=EXPERIMENT,
            point=point,
            load=name,
            initiator=initiator,
            initiator_kind="pu",
            target=target,
            value=rows["value"] * share,
            factors=[json.dumps(factors)] * len(rows),
        )

    alone = {"device": "alone", "cores": "pu1"}
    both = {"device": "opencl0", "cores": "pu1"}
    parts = (
        load(BESIDE.replace("opencl0", "none"), "memory", "pu1", "node0", 1.0, **alone),
        load(BESIDE, "memory", "pu1", "node0", cores, **both),
        load(BESIDE, "device", "pu0", "opencl0", device, **both),
        load("device=pu0+opencl0", "device", "pu0", "opencl0", 1.0, **both | {"cores": "alone"}),
    )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def drawn(tmp_path):
    experiment, topology = load_experiment(EXPERIMENT), synthetic.small().topology()
    files = draw([experiment], table(0.6, 0.75), topology, tmp_path)
    assert [file.problem for file in files] == [None, None]
    return tmp_path, {file.name: file for file in files}


def test_both_sides_say_what_they_lose(drawn):
    _, files = drawn
    cores, device = (files[f"gpu_and_cpu_{side}"].sentence for side in ("cores", "device"))
    assert cores.startswith("Bandwidth compared with alone: 40 % less for PU 1 with OpenCL")
    assert device.startswith("Bandwidth compared with alone: 25 % less for OpenCL device 0 with")


def test_both_bars_are_drawn_alone_first(drawn):
    folder, _ = drawn
    for side, beside in (("cores", "OpenCL device 0"), ("device", "PU 1")):
        root = etree.parse(folder / f"gpu_and_cpu_{side}.svg").getroot()
        marks = [mark for mark in root.iter(f"{SVG}g") if mark.get("class") == "mark"]
        words = [mark.find(f"{SVG}title").text for mark in marks]
        assert len(words) == 2
        assert "alone" in words[0]
        assert beside in words[1]

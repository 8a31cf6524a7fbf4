"""The shipped topologies are what their program makes of its table."""

from __future__ import annotations

import runpy
import shutil

import pytest
from lxml import etree

from chaosity.documents.shipped_documents import ROOT

FOLDER = ROOT / "templates/machines" / "topologies"


@pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="hwloc is not installed")
def test_files_follow_from_the_table():
    program = runpy.run_path(str(FOLDER / "make_topologies.py"))
    assert {path.stem for path in FOLDER.glob("*.xml")} == set(program["MACHINES"])
    for name in (
        "epyc_7413_nps4",
        "desktop",
        "apple_m1_pro",
        "epyc_9554_cxl",
        "xeon_max_9480_snc4",
    ):
        made = program["make_topology"](program["MACHINES"][name])
        etree.indent(made)
        stored = etree.parse(FOLDER / f"{name}.xml").getroot()
        assert [contents(each) for each in made.iter()] == [
            contents(each) for each in stored.iter()
        ]


def contents(element: etree._Element) -> tuple[dict[str, str], str]:
    """The attributes of an element and its text, such as the entries of the SLIT."""
    return dict(element.attrib), (element.text or "").strip()

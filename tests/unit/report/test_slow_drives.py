"""A drive that is slower than its siblings stands at the top of the report."""

from __future__ import annotations

import synthetic

from chaosity.figures import FigureFile
from chaosity.report.siblings import slow_drives
from chaosity.statistics import plain

SLOW = "drive-0000-51-01-0"


def found(machine, figures=(), folder=None):
    return slow_drives(plain(machine.tidy()), machine.components(), figures, folder)


def test_one_of_thirty_drives_at_a_fifth_is_named_with_its_factor(tmp_path):
    machine = synthetic.epyc()
    machine.slow = {SLOW: 0.2}
    csv = f"initiator,target\nnode0,{SLOW}\n"
    (tmp_path / "by_drive.csv").write_text(csv)
    (tmp_path / "by_node.csv").write_text("initiator,target\nnode0,node5drives\n")
    figures = [
        FigureFile(name, "storage_bandwidth", "heatmap", "", "", None, None, (), (), 1, "", "",
                   f"{name}.csv") for name in ("by_node", "by_drive")
    ]  # fmt: skip
    [finding], check = found(machine, figures, tmp_path)
    assert check is None
    assert finding.title.startswith(f"{SLOW} is slow: 1.3")
    assert "0.20 times the 6.9" in finding.title
    assert "n = 3" in finding.title
    assert "median of 29 other drives" in finding.text
    assert "serial S51, node 5" in finding.text
    assert finding.figure == "by_drive"


def test_none_slow_says_how_the_slowest_does():
    findings, check = found(synthetic.epyc())
    assert findings == []
    assert check.severity == "ok"
    assert "none of 30 drives" in check.text


def test_many_slow_drives_are_one_list():
    machine = synthetic.epyc()
    drives = [name for name in machine.components() if name.endswith("-00-0")]
    machine.slow = dict.fromkeys(drives, 0.3)
    findings, _ = found(machine)
    assert len(findings) == 4
    assert findings[-1].title == "5 more slow drives:"


def test_a_difference_that_does_not_matter_is_no_finding():
    machine = synthetic.epyc()
    machine.slow = {SLOW: 0.9}
    assert found(machine)[0] == []


def test_a_single_replicate_is_told_without_interval():
    machine = synthetic.epyc(replicates=1)
    machine.slow = {SLOW: 0.2}
    assert "one replicate, no interval" in found(machine)[0][0].title


def test_drives_of_unknown_model_have_no_siblings():
    assert slow_drives(plain(synthetic.epyc().tidy()), {}, (), None) == ([], None)

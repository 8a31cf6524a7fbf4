"""What the check tells people to look at depends on the part that is slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaosity.cli.terminal_output import print_template
from chaosity.health.check_host import CheckResult
from chaosity.health.choose_check_points import CheckPoint
from chaosity.health.judge_check_values import CheckedValue
from checked_server import check_points

OF_DRIVE = "look at the health and the link of the drive"
NODE = next(each for each in check_points() if each.parts == ("node0",))
PATH = next(each for each in check_points() if len(each.parts) == 2)
DRIVE = next(each for each in check_points() if each.load["target"]["drives"])


def other_drive(name: str, **place: str) -> CheckPoint:
    """The point of a drive that is no NVMe drive, or of a file in its place."""
    target = {**DRIVE.load["target"], "drives": [{"node": None, "component": name, **place}]}
    return replace(DRIVE, load={**DRIVE.load, "target": target}, parts=(name,))


def output_of_check(slow: CheckPoint, capsys, *, disturbed: bool = False) -> str:
    """What a check prints in which a single value is slow, measured three times."""
    values = [
        CheckedValue(each, (100.0,), 100.0, 0.05)
        for each in check_points()
        if each.parts != slow.parts
    ]
    values.append(CheckedValue(slow, (20.0, 20.0, 20.0), 100.0, 0.05, disturbed))
    result = CheckResult("server", "2026-11-25T02:00:00.000Z", 44.0, values)
    print_template("check", result=result, every=False, recent=7)
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("check", "advice"),
    [
        (NODE, "look at its memory modules and at the clock of its cores"),
        (PATH, "look at the link between the nodes"),
        (DRIVE, "look at its health and link (nvme smart-log, lspci -vv)"),
        (other_drive("disk-sdb", path="/dev/sdb"), OF_DRIVE),
        (
            other_drive("file0", file="/var/tmp/file0"),
            OF_DRIVE,
        ),
    ],
    ids=["node", "path", "NVMe drive", "disk", "file"],
)
def test_the_advice_fits_the_slow_part(check, advice, capsys):
    said = output_of_check(check, capsys)
    assert f"server: fault [node_problem] {'->'.join(check.parts)}: 80 % worse" in said
    assert f"; {advice}" in said


def test_nobody_looks_for_a_broken_part_while_other_programs_work(capsys):
    said = output_of_check(DRIVE, capsys, disturbed=True)
    assert "server: warning [user_problem] " in said
    assert "; check it again when nobody works on the host." in said

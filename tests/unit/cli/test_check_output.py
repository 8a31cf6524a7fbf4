"""What the check tells people to look at depends on the part that is slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaosity.cli.check import print_check_result
from chaosity.health.check_host import HostCheckResult
from chaosity.health.choose_check_points import CheckPoint
from chaosity.health.judge_check_values import CheckedValue
from nightly_checks import check_points


def point_of(part: str) -> CheckPoint:
    """The point of a node, a path or a drive; the server itself has no disk and no file."""
    points = check_points()
    if part == "node":
        return next(each for each in points if each.parts == ("node0",))
    if part == "path":
        return next(each for each in points if len(each.parts) == 2)
    nvme = next(each for each in points if each.load["target"]["drives"])
    if part == "NVMe drive":
        return nvme
    name, place = {"disk": ("disk-sdb", "path"), "file": ("file0", "file")}[part]
    drive = {"node": None, "component": name, place: f"/somewhere/{name}"}
    target = {**nvme.load["target"], "drives": [drive]}
    return replace(nvme, load={**nvme.load, "target": target}, parts=(name,))


def output_of_check(slow: CheckPoint, capsys, *, disturbed: bool = False) -> str:
    """What a check prints in which a single value is slow, measured three times."""
    values = [
        CheckedValue(each, (100.0,), 100.0, 0.05)
        for each in check_points()
        if each.parts != slow.parts
    ]
    values.append(CheckedValue(slow, (20.0, 20.0, 20.0), 100.0, 0.05, disturbed))
    result = HostCheckResult("server", "2026-11-25T02:00:00.000Z", 44.0, values)
    print_check_result(result, print_all=False)
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        ("node", "look at its memory modules and at the clock of its cores"),
        ("path", "look at the link between the nodes"),
        ("NVMe drive", "look at its health and link (nvme smart-log, lspci -vv)"),
        ("disk", "look at the health and the link of the drive"),
        ("file", "look at the health and the link of the drive"),
    ],
)
def test_the_advice_fits_the_slow_part(part, advice, capsys):
    check = point_of(part)
    said = output_of_check(check, capsys)
    assert f"server: fault [node_problem] {'->'.join(check.parts)}: 80 % worse" in said
    assert f"; {advice}" in said


def test_nobody_looks_for_a_broken_part_while_other_programs_work(capsys):
    said = output_of_check(point_of("NVMe drive"), capsys, disturbed=True)
    assert "server: warning [user_problem] " in said
    assert "; check it again when nobody works on the host." in said

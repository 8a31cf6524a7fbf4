"""All hosts on one page, and hosts that a run left out."""

from __future__ import annotations

import json

import pytest
import synthetic
from click.testing import CliRunner
from test_report import FIGURES, read, write

from chaosity.cli.report import is_stale, reports
from chaosity.errors import UserError
from chaosity.figures import draw
from chaosity.report import summary_of, write_overview
from chaosity.store import LeftOut


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    found = synthetic.small()
    draw(FIGURES, found.tidy(), found.topology(), folder)
    return folder


def measured(results, figures, host="lab", configuration="default", **keys):
    """A host's report and what is beside it."""
    found = synthetic.Machine(host, ((0,),), cores_per_node=2, configuration=configuration, **keys)
    folder = results / host / configuration
    folder.mkdir(parents=True)
    context, _ = write(folder, found, figures)
    summary = summary_of(context, found.tidy()).to_json()
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "summary.txt").write_text("warning: something\n")
    text = json.dumps({"host": host, "configuration": configuration})
    (results / host / "host.json").write_text(text)
    return folder


def leave_out(results, host, reason="no route to host"):
    (results / host).mkdir(exist_ok=True)
    entry = {"host": host, "at": "2026-11-21T09:15:00.000Z", "reason": reason}
    (results / host / "left_out.json").write_text(json.dumps(entry))


def overview(results):
    found = write_overview(results.glob("*/*/summary.json"), results / "index.html")
    return found, (results / "index.html").read_text(encoding="utf-8")


def test_a_row_has_link_worst_points_and_resources(tmp_path, figures):
    failed = {"memory=node0+node0+triad": "killed"}
    measured(tmp_path, figures, "a", failed=failed)
    measured(tmp_path, figures, "b", "nps1")
    found, html = overview(tmp_path)
    first, second = found.rows
    assert (first.host, first.link) == ("a", "a/default/report.html")
    assert (first.failed, first.missing, second.failed) == (1, 0, 0)
    assert first.severity == "problem"
    assert found.columns == ("Memory bandwidth", "Storage bandwidth")
    assert first.resources[0][0]["value"].endswith(" GB/s")
    assert found.sentence.startswith("Worst: a default, Failed points: 1 of")
    page = read(html)
    assert page.open == []
    assert {"a/default/report.html", "b/nps1/report.html"} == set(page.references)


def test_a_host_that_was_left_out_is_there_by_name(tmp_path, figures):
    measured(tmp_path, figures, "a")
    leave_out(tmp_path, "a")
    leave_out(tmp_path, "never", "the <host key> changed")
    found, html = overview(tmp_path)
    assert [row.left_out is not None for row in found.rows] == [True, True]
    assert found.rows[0].valid > 0
    assert found.rows[1].link is None
    assert "no route to host" in html
    assert "&lt;host key&gt;" in html
    assert "left out on 2026-11-21 09:15 UTC" in found.sentence


def test_a_broken_summary_is_said(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/summary.json").write_text("{}")
    with pytest.raises(UserError, match="is no summary"):
        overview(tmp_path)


def test_the_report_of_a_host_that_was_left_out_says_so(tmp_path, figures):
    away = LeftOut("lab", "2026-11-21T09:15:00.000Z", "no route to <host>.")
    _, html = write(tmp_path, synthetic.small(), figures, left_out=away)
    assert "2026-11-21 09:15 UTC: no route to &lt;host&gt;." in html
    assert "The last run left this host out" in html
    _, html = write(tmp_path, synthetic.small(), figures)
    assert "left this host out" not in html


def run(results, *arguments):
    return CliRunner().invoke(reports, ["--results", str(results), *arguments])


def test_reports_of_one_host_end_with_its_path(tmp_path, figures):
    folder = measured(tmp_path, figures)
    done = run(tmp_path)
    assert done.exit_code == 0
    assert done.output.splitlines() == ["warning: something", str(folder / "report.html")]


def test_reports_name_the_overview_last(tmp_path, figures):
    measured(tmp_path, figures, "a")
    measured(tmp_path, figures, "b")
    overview(tmp_path)
    assert run(tmp_path).output.splitlines()[-1] == str(tmp_path / "index.html")


def test_reports_name_who_was_left_out_and_fail(tmp_path, figures):
    folder = measured(tmp_path, figures, "a")
    leave_out(tmp_path, "b")
    done = run(tmp_path)
    assert done.exit_code == 1
    assert done.output.splitlines()[1:] == [
        str(folder / "report.html"), "left out: b, 2026-11-21 09:15 UTC: no route to host",
    ]  # fmt: skip


def test_a_report_that_says_so_already_is_not_made_again(tmp_path, figures):
    folder = measured(tmp_path, figures, "a")
    leave_out(tmp_path, "a")
    assert is_stale(folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["left_out"] = "2026-11-21 09:15 UTC: no route to host"
    (folder / "summary.json").write_text(json.dumps(summary))
    assert not is_stale(folder)
    (tmp_path / "a/left_out.json").unlink()
    assert is_stale(folder)  # the host is back


def test_of_one_host_nobody_elses_absence_is_told(tmp_path, figures):
    folder = measured(tmp_path, figures, "a")
    measured(tmp_path, figures, "b")
    leave_out(tmp_path, "b")
    done = run(tmp_path, "--anew", "a")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == ["warning: something", str(folder / "report.html")]
    assert run(tmp_path, "--anew", "b").exit_code == 1

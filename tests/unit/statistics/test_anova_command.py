"""``chaosity anova`` on anybody's table."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from lxml import etree

from chaosity.cli import chaosity
from chaosity.errors import UserError
from shipped_data import PUBLISHED_TABLES

ROWS = [
    "node,kernel,run,MBps",
    "0,copy,1,100.1",
    "0,copy,2,101.3",
    "0,triad,1,140.2",
    "0,triad,2,139.0",
    "1,copy,1,80.5",
    "1,copy,2,82.0",
    "1,triad,1,120.9",
    "1,triad,2,118.2",
]
NEARLY = [("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 2.8), ("b", 3.8), ("b", 4.8)]
GIVEN = ["--response", "MBps", "--factors", "node,kernel"]


def run(*arguments):
    return CliRunner().invoke(chaosity, ["anova", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "stream.csv"
    path.write_text("\n".join(ROWS) + "\n")
    return path


def test_tests_and_intervals_have_one_confidence(file):
    """At p = 0.09, a study with 90 % intervals finds a difference, and one with 95 % does not."""
    table = ["kind,value", *(f"{kind},{value}" for kind, value in NEARLY)]
    file.write_text("\n".join(table) + "\n")
    given = ["--response", "value", "--factors", "kind"]
    for confidence, found in ((0.9, True), (0.95, False)):
        text = run(file, *given, "--confidence", confidence).output
        assert f"{100 * confidence:g} % interval" in text
        answer = json.loads(run(file, *given, "--confidence", confidence, "--json").output)
        [term, *_], [pair] = answer["terms"], answer["contrasts"]
        assert (term["p_value"], answer["confidence"]) == (
            pytest.approx(0.0921, abs=1e-4),
            confidence,
        )
        assert term["significant"] == (pair["low"] > 0.0 or pair["high"] < 0.0) == found
        assert ("kind: significant" in text) == found


def test_the_terminal_shows_what_combinations_add(file):
    text = run(file, *GIVEN, "--block", "run").output
    assert "Interactions: what a combination adds to the effects of its levels" in text
    # Of copy on node 0, from the means of two runs: 100.7 - 120.15 - 90.975 + 110.275.
    [line] = [line for line in text.splitlines() if "0 x copy" in line]
    assert line.split()[-5:-3] == ["2", "-0.15"]


def test_json_has_all_numbers(file):
    found = json.loads(run(file, *GIVEN, "--block", "run", "--json").output)
    assert [term["name"] for term in found["terms"]] == [
        "node",
        "kernel",
        "node x kernel",
        "run",
        "error",
        "total",
    ]
    assert found["terms"][0]["sum_of_squares"] == pytest.approx(780.125)
    assert (found["n"], found["block"], found["transform"]) == (8, "run", "none")
    assert {"factor", "level", "against", "difference", "low", "high", "ratio"} <= set(
        found["contrasts"][0]
    )
    assert len(found["residuals"]) == len(found["fitted"]) == len(found["normal_quantiles"]) == 8
    assert found["effects"][0]["ratio"] is None


def test_the_transform_can_be_forced(file):
    found = json.loads(run(file, *GIVEN, "--transform", "log", "--json").output)
    assert found["transform"] == "log"
    assert found["contrasts"][0]["ratio"] == pytest.approx(0.832, abs=2e-3)


def test_residuals_are_drawn(file, tmp_path):
    found = run(file, *GIVEN, "--figures", tmp_path / "figures")
    assert found.exit_code == 0
    paths = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert paths == ["stream_residuals.png", "stream_residuals.svg"]
    root = etree.parse(str(tmp_path / "figures/stream_residuals.svg")).getroot()
    uses = root.xpath(
        "//*[local-name()='g'][starts-with(@id, 'stream_residuals-line2d')]//*[local-name()='use']"
    )
    assert len(uses) >= 16  # eight marks in each of the two panels, and the ticks
    assert "Residuals of MBps by node and kernel" in root.get("aria-label")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "stream.csv: is empty; write a row of column names"),
        (ROWS[:1], "stream.csv: the table has too few rows of values (0)"),
        ([*ROWS, "1,copy,3"], "stream.csv, row 10: the row has 3 cells; the file has 4 columns"),
        (
            [*ROWS[:3], "", "1,copy,1,fast", *ROWS[3:]],
            "stream.csv, row 5, column MBps: 'fast' is not a number",
        ),
        ([*ROWS, "1,copy,3,"], "stream.csv, row 10, column MBps: is empty"),
        (["node,node,run,MBps", *ROWS[1:]], "stream.csv, row 1: two columns have the name 'node'"),
        (["node,,run,MBps", *ROWS[1:]], "stream.csv, row 1: column 2 has no name"),
        (["node,kern,run,MBps", *ROWS[1:]], "stream.csv, kernel: is not a column of the table"),
        (
            [ROWS[0], *(row for row in ROWS[1:] if "copy" in row)],
            "stream.csv, column kernel: has a single level, copy",
        ),
    ],
)
def test_a_bad_table_is_reported_with_row_and_column(file, lines, said):
    file.write_text("\n".join(lines) + ("\n" if lines else ""))
    found = run(file, *GIVEN)
    assert isinstance(found.exception, UserError)
    assert said in str(found.exception)
    assert "\n" not in str(found.exception)


def test_a_binary_file_is_refused(file):
    file.write_bytes(b"\xff\xfe\x00\x81node")
    assert "is not a CSV file" in str(run(file, *GIVEN).exception)


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(file):
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(ROWS).encode())
    assert run(file, *GIVEN).exit_code == 0


def test_a_published_table():
    path = PUBLISHED_TABLES / "nes_penguin_stream_8t_long.csv"
    given = ("--response", "best_rate_MBps", "--factors", "cpu_node,mem_node,size_label_gb")
    found = json.loads(run(path, *given, "--json").output)
    shares = {term["name"]: term["variation_percent"] for term in found["terms"]}
    assert shares["cpu_node x mem_node"] > 99.0  # local or remote is all there is
    assert found["n"] == 128

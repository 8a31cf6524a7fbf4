"""``chaosity anova`` on anybody's table."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from lxml import etree

from chaosity.cli import chaosity
from chaosity.errors import UserError

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
        answer = json.loads(run(file, *given, "--confidence", confidence, "--json").output)
        [term, *_], [pair] = answer["terms"], answer["contrasts"]
        assert (term["p_value"], answer["confidence"]) == (
            pytest.approx(0.0921, abs=1e-4),
            confidence,
        )
        assert term["significant"] == (pair["low"] > 0.0 or pair["high"] < 0.0) == found


def test_residuals_are_drawn(file, tmp_path):
    found = run(file, *GIVEN, "--figures", tmp_path / "figures")
    assert found.exit_code == 0
    paths = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert paths == [f"stream_residuals.{form}" for form in ("png", "svg", "vl.json")]
    root = etree.parse(str(tmp_path / "figures/stream_residuals.svg")).getroot()
    marks = root.xpath("//*[@class='mark']")
    assert len(marks) >= 16  # eight in each of the two panels, and what a line says
    assert "Residuals of MBps by node and kernel" in root.get("aria-label")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "stream.csv: the file has no row of values; write a row of column names"),
        ([*ROWS, "1,copy,3"], "stream.csv, row 10: the row has 3 cells, but the first row has 4"),
        (
            [*ROWS[:3], "", "1,copy,1,fast", *ROWS[3:]],
            "stream.csv, row 5, column MBps: 'fast' is not a number",
        ),
        (["node,node,run,MBps", *ROWS[1:]], "stream.csv, row 1: two columns have the name 'node'"),
        (["node,,run,MBps", *ROWS[1:]], "stream.csv, row 1: column 2 has no name"),
    ],
)
def test_a_bad_table_is_reported_with_row_and_column(file, lines, said):
    file.write_text("\n".join(lines) + ("\n" if lines else ""))
    found = run(file, *GIVEN)
    assert isinstance(found.exception, UserError)
    assert said in str(found.exception)
    assert "\n" not in str(found.exception)


def test_other_encodings(file):
    file.write_bytes(b"\xff\xfe\x00\x81node")
    assert "is not a CSV file" in str(run(file, *GIVEN).exception)
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(ROWS).encode())
    assert run(file, *GIVEN).exit_code == 0

"""``chaosity anova`` on anybody's table: what cannot be analysed is refused in one sentence."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from lxml import etree

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.statistics.anova import analyse_variance
from strategies import change_text, changed, check_any_input, write_text

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


def frame(**columns):
    given = {"node": ["a", "a", "b", "b"], "kernel": list("xyxy"), "v": [1.0, 2.0, 3.0, 5.0]}
    return pd.DataFrame(given | columns, index=[2, 3, 4, 5])


@pytest.mark.parametrize(
    ("table", "asked", "said"),
    [
        (frame(v=[1.0, "fast", 3.0, 4.0]), {}, r"^row 3, column v: 'fast' is not a number\.$"),
        (frame(v=[1.0, 2.0, None, 4.0]), {}, "^row 4, column v: the cell is empty"),
        (frame(v=["1", "2", " ", "4"]), {}, "^row 4, column v: the cell is empty"),
        (frame(v=[1.0, 2.0, 3.0, np.inf]), {}, "^row 5, column v: inf is not a finite number"),
        (frame(v=["1", "2", "3", "nan"]), {}, "^row 5, column v: 'nan' is not a finite number"),
        (frame(node=["a", "", "b", "b"]), {}, "^row 3, column node: the cell is empty"),
        (frame(node=["a"] * 4), {}, "^column node: the column has a single level, a; omit this"),
        (
            frame(v=[7.0] * 4),
            {},
            "^column v: the response is 7 in every row; there is no variation",
        ),
        (frame(), {"factors": ["node", "node"]}, "^node: the same column is used twice"),
        (frame(), {"factors": ["v"]}, "^v: the same column is used twice"),
        (frame(), {"block": "node"}, "^node: the same column is used twice"),
        (frame(), {"factors": ["nodes"]}, "^nodes: the table has no such column; columns: node"),
        (frame(), {"response": "w"}, "^w: the table has no such column"),
        (frame(), {"factors": []}, "^there is no factor"),
        (frame().iloc[:0], {}, "^the table has too few rows of values \\(0\\)"),
        (frame().iloc[:1], {}, "^the table has too few rows of values \\(1\\)"),
        (frame(), {"transform": "sqrt"}, "^unknown transform 'sqrt'; allowed: auto, better"),
        (frame(v=[1.0, -2.0, 3.0, 4.0]), {"transform": "log"}, "^row 3, column v: -2 has no log"),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(table, asked, said):
    given = {"response": "v", "factors": ["node", "kernel"], **asked}
    with pytest.raises(UserError, match=said) as refused:
        analyse_variance(table, **given)
    assert "\n" not in str(refused.value)


def test_two_columns_of_one_name_are_refused():
    table = frame()
    table.columns = ["node", "node", "v"]
    with pytest.raises(UserError, match=r"^node: two columns have this name"):
        analyse_variance(table, "v", ["node"])


def test_levels_with_thousands_of_digits_are_in_the_order_of_their_numbers():
    levels = [f"n{number}" for number in ("9" * 5000, "10", "9")]
    table = pd.DataFrame({"y": [1.0, 2.0, 3.0] * 2, "f": levels * 2})
    effects = analyse_variance(table, "y", ["f"], None, "none").effects
    assert [effect.level for effect in effects] == levels[::-1]


def test_a_ratio_above_all_numbers_is_left_out():
    table = pd.DataFrame({"node": list("aabb"), "v": [1e-300, 1e-299, 1e299, 1e300]})
    [contrast] = analyse_variance(table, "v", ["node"], transform="log").contrasts
    assert contrast.difference.ratio is None or contrast.difference.ratio < 1e-300
    assert None in (contrast.difference.ratio, contrast.difference.ratio_high)


def test_any_table_is_analysed_or_refused(tmp_path):
    rows = [f"{run % 2},{'xy'[run // 2 % 2]},{run // 4},{100 + 9 * run}\n" for run in range(12)]

    def analyse(text, folder):
        path = write_text(folder / "speeds.csv", text)
        options = ["--response", "v", "--factors", "node,kernel", "--block", "run", "--json"]
        with contextlib.redirect_stdout(io.StringIO()):
            chaosity.main(["anova", str(path), *options], standalone_mode=False)

    tables = changed(["node,kernel,run,v\n" + "".join(rows)], change_text, 3)
    check_any_input(tables, analyse, tmp_path, 0.15)

"""Tables of others as CSV files."""

from __future__ import annotations

import csv

from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.store.read_csv_table import read_csv_table

names = st.lists(st.text("abc", min_size=1), min_size=2, max_size=4)
cells = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=5).map(str.strip)


@settings(deadline=None, max_examples=50)
@given(names, st.data(), st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]))
def test_a_written_table_is_read_back(tmp_path_factory, head, data, delimiter, line_end):
    row = st.lists(cells, min_size=len(head), max_size=len(head)).filter(any)
    body = data.draw(st.lists(row, min_size=1, max_size=4))
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator=line_end).writerows([head, *body])
    found = read_csv_table(path)
    assert (found.names, found.first_line, list(found.rows.values())) == (head, 1, body)
    assert list(found.rows) == list(range(2, len(body) + 2))
    first_cells = [cells[0] for cells in body]
    if not all(cell.startswith("#") for cell in first_cells):
        kept = read_csv_table(path, comments=True).rows.values()
        assert list(kept) == [cells for cells in body if not cells[0].startswith("#")]

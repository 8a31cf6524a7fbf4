"""The pages of docs/reference say what commands, types and files say now."""

from __future__ import annotations

import runpy

from chaosity.documents.shipped_documents import ROOT


def test_make_docs_would_leave_no_difference() -> None:
    written = runpy.run_path(str(ROOT / "docs/write_reference.py"))["written_pages"]()
    differ = [path.name for path, text in written.items() if path.read_text() != text]
    assert not differ, "run `make docs`"

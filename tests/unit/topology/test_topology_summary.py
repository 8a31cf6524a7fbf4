"""The summary of a topology on a terminal with 100 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity

OWN = Path(__file__).resolve().parents[2] / "data/topologies"


@pytest.fixture
def shown(monkeypatch):
    """Runs the command and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> str:
        return CliRunner().invoke(chaosity, ["topology", *arguments], catch_exceptions=False).stdout

    return run


def test_the_summary_fits_on_100_columns(shown):
    for path in OWN.glob("*.xml"):
        lines = shown(str(path)).splitlines()
        assert max(map(len, lines)) <= 100
        assert "…" not in "".join(lines)


def test_this_machine_is_the_default(shown):
    values = json.loads(shown("--json"))
    assert values["kind"] == "live"
    assert values["pus"] >= 1
    assert f"{values['usable']['pus']} PU" in shown()

"""Wrong input, and options that nothing would read, end with one sentence and a status."""

from __future__ import annotations

from pathlib import Path

import pytest

from broken_runs import chaosity

SENTENCES = {
    "plan --list --json": "--list: it has no effect with --json; leave it out.",
    "plan --commands --budget 30m": "--budget: it has no effect with --commands; leave it out.",
    "history h --all --json": "--all: it has no effect with --json; leave it out.",
    "predict --topology t.csv": "--topology: it has no effect without --machine; leave it out.",
    "weights t.csv --workers 0 --form table_1": "--form: it has no effect without --against;",
    "weights other.parquet --workers 0": "other.parquet: the table is another one; name measure",
    "export all h/nps4 --output out": "h/nps4: measurements.parquet is missing; name a folder",
    "overview --output index.html": "no summary of a report is named; name a file such as",
    "reports --results none": "none: the folder has no host; measure one with make run.",
    "reports --results . --anew other": ".: there is no host other; allowed: h.",
    # No file can be made there, even by root.
    "anova t.csv --response y --factors a --figures /proc/none": "/proc/none",
}


@pytest.mark.parametrize(("command", "said"), SENTENCES.items())
def test_wrong_input_is_one_sentence(command: str, said: str, tmp_path: Path):
    (tmp_path / "h/nps4/points").mkdir(parents=True)
    (tmp_path / "h/host.json").write_text("{}")
    (tmp_path / "t.csv").write_text("y,a\n1,u\n2,v\n")
    (tmp_path / "other.parquet").write_text("")
    done = chaosity(*command.split(), folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout.startswith("chaosity: ") and done.stdout.count("\n") == 1
    assert said in done.stdout

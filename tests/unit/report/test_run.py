from __future__ import annotations

from dataclasses import replace

from chaosity.records.record_files import SCHEMA_VERSION, save_record
from chaosity.records.record_format import make_check, make_verdict
from chaosity.report.run import read_record_summaries, unmet_note_sentences


def record(status="valid", started=True):
    load = {"name": "memory", "command": ["numactl", "--membind=0", "a tool"]}
    program = {"program": {"name": "fio", "path": "/usr/bin/fio", "version": "fio-3.33"}}
    checks = [make_check("memory: pages", status == "valid", "half of them")]
    return {
        "schema_version": SCHEMA_VERSION,
        "point": {"experiment": "e", "point": "memory=node0+node0+triad", "loads": [load]},
        "replicate": 2,
        "order": 17,
        "began_at": "2026-11-21T04:09:08.961Z",
        "finished_at": "2026-11-21T04:09:11.461Z",
        "loads": [{**load, **program}] if started else [],
        "verdict": make_verdict(checks),
    }


def noted(folder, *said, target="bwap"):
    """Return runs with these notes on their search; None: it converged, "": there was none."""
    for number, words in enumerate(said, start=1):
        found = record()
        [load] = found["loads"]
        load |= {"target": {"name": target}, "notes": [{"name": "search to its end"}]}
        if words != "":
            name, detail = "memory: search to its end", words or "nothing was noted"
            note = make_check(name, words is None, detail, decisive=False)
            found["verdict"]["checks"].append(note)
        save_record(found, folder / f"{target}/rep{number}.json")
    return read_record_summaries(folder.glob(f"{target}/*.json"))


def test_notes_of_tools_are_counted_by_target(tmp_path):
    short = "cut short after 60 s, at the best so far"
    runs = noted(tmp_path, short, None, short, "") + noted(tmp_path, None, target="bwap_uniform")
    assert list(unmet_note_sentences(runs)) == [
        f"search to its end, bwap: not met in 2 of 3 runs: {short}"
    ]
    assert not list(unmet_note_sentences([replace(run, status="failed") for run in runs]))


def test_incomplete_records_are_skipped(tmp_path):
    (tmp_path / "rep1.json").write_text('{"half": ')
    (tmp_path / "rep2.json").write_text('{"schema_version": 1, "verdict": {}}')
    assert read_record_summaries(tmp_path.glob("*.json")) == []

from __future__ import annotations

from chaosity import records
from chaosity.report import summarise_records


def record(status="valid", started=True):
    load = {"name": "memory", "command": ["numactl", "--membind=0", "a tool"]}
    program = {"program": {"name": "fio", "path": "/usr/bin/fio", "version": "fio-3.33"}}
    checks = [records.check("memory: pages", status == "valid", "half of them")]
    return {
        "schema_version": records.SCHEMA_VERSION,
        "point": {"experiment": "e", "point": "memory=node0+node0+triad", "loads": [load]},
        "replicate": 2,
        "order": 17,
        "began_at": "2026-11-21T04:09:08.961Z",
        "finished_at": "2026-11-21T04:09:11.461Z",
        "loads": [{**load, **program}] if started else [],
        "verdict": records.verdict(checks),
    }


def test_a_record_is_summarised(tmp_path):
    path = tmp_path / "rep2.json"
    records.save(record(), path)
    (run,) = summarise_records([path])
    assert (run.experiment, run.replicate, run.order, run.status) == ("e", 2, 17, "valid")
    assert run.seconds == 2.5
    assert run.commands == {"memory": "numactl --membind=0 'a tool'"}
    assert run.programs == {"fio": "fio-3.33"}


def test_what_failed_before_it_began_has_the_command_that_was_planned(tmp_path):
    path = tmp_path / "rep2.json"
    records.save(record("failed", started=False), path)
    (run,) = summarise_records([path])
    assert run.reason == "memory: pages: half of them"
    assert run.commands == {"memory": "numactl --membind=0 'a tool'"}
    assert run.programs == {}


def test_what_is_no_record_is_left_out(tmp_path):
    (tmp_path / "rep1.json").write_text('{"half": ')
    (tmp_path / "rep2.json").write_text('{"schema_version": 1, "verdict": {}}')
    assert summarise_records(tmp_path.glob("*.json")) == []

"""Content of others is never executed, evaluated, unpacked without a limit or shown raw."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path

import duckdb
import hostile_texts as hostile
import pandas as pd
import pytest

from chaosity.cli.shared import echo, json_text, print_line, print_table
from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError, printable_short_line, printable_text
from chaosity.hosts.ansible_inventory import read_inventory
from chaosity.hosts.runner_command import connection_error_cause, runner_command_line, ssh_transport
from chaosity.result_folders import read_skipped_host, write_skipped_host_note
from chaosity.slurm import parse_slurm_nodes
from chaosity.store import tidy_table_parquet
from chaosity.store.csv_tables import csv_text, escape_formula
from chaosity.store.profile_bundles import read_bundle
from chaosity.store.tidy_table_parquet import read_parquet_table
from chaosity.topology.topology_discovery import discover_topology


def inventory(folder: Path, host: str, **variables: object) -> str:
    path = folder / "hosts.json"
    path.write_text(json.dumps({"all": {"hosts": {host: variables}}}))
    return str(path)


# ---- the shell ----


@pytest.mark.parametrize("name", [hostile.SHELL, "..", "-rf", "a\nb"])
def test_a_host_name_that_a_shell_or_path_would_read_is_refused(tmp_path, name):
    with pytest.raises(UserError, match=r"name|inventory|host"):
        read_inventory(inventory(tmp_path, name))


def test_shell_characters_in_variables_of_a_host_reach_no_shell(tmp_path):
    variables = {"ansible_host": "127.0.0.1", "runner_directory": hostile.SHELL}
    command = runner_command_line(ssh_transport("a", variables), "--replicate", hostile.SHELL)
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command[-1]}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )  # the shell of the host gets the last word
    assert done.stdout.splitlines()[-1] == hostile.SHELL
    assert hostile.SHELL in done.stdout.splitlines()[1]
    assert list(tmp_path.iterdir()) == []


def test_an_address_cannot_be_an_option_of_ssh():
    command = runner_command_line(ssh_transport("a", {"ansible_host": "-oProxyCommand=touch x"}))
    assert command[command.index("-oProxyCommand=touch x") - 1] == "--"


def test_names_of_slurm_nodes_with_shell_characters_are_ignored():
    text = "NodeName=a;touch State=IDLE\nNodeName=$(id) State=IDLE\nNodeName=n1 State=IDLE\n"
    assert list(parse_slurm_nodes(text)) == ["n1"]


def shell_texts(path):
    """The texts of all shell commands in a file of rules."""
    inside = False
    for line in path.read_text().splitlines():
        begins = re.search(r"\bshell[:(]", line)
        inside = begins or (inside and re.match(r"\s*(?:f?\"|#|\+|\(|$)", line))
        if inside and not line.strip().startswith("#"):
            yield from re.findall(r'(f?)"((?:[^"\\]|\\.)*)"', line)


def test_every_value_in_a_shell_line_of_the_workflow_is_quoted():
    files = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
    texts = [(path.name, *text) for path in files for text in shell_texts(path)]
    assert len(texts) > 15
    for name, kind, text in texts:
        for field in re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", text):
            assert field.endswith(":q") or field.startswith("shlex."), f"{name}: {field}"
        if kind:  # in such a text, Snakemake's own fields have two braces
            for field in re.findall(r"\{\{([^{}]+)\}\}", text):
                assert field.endswith(":q"), f"{name}: {field}"


# ---- Jinja and YAML ----


def test_a_value_that_the_inventory_marks_as_unsafe_is_not_evaluated(tmp_path):
    path = tmp_path / "hosts.yml"
    drives = f"[!unsafe {json.dumps(hostile.JINJA)}]"
    path.write_text(f"all: {{hosts: {{a: {{chaosity_destructive_drives: {drives}}}}}}}")
    [host] = read_inventory(str(path))
    assert host.variables["chaosity_destructive_drives"] == [hostile.JINJA]
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch pwned']",
        "!!python/name:os.system",
        "[" * 100_000,
        "- " * 100_000 + "x",
        "&a [*a]",
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{'b' * n}: &{'b' * n} [{','.join(['*' + ('b' * (n - 1) or 'a')] * 10)}]\n"
            for n in range(1, 12)
        ),
        "x" * 2**21,
    ],
    ids=["object", "name", "deep flow", "deep block", "recursive", "billion laughs", "long"],
)
def test_yaml_with_objects_or_without_an_end_is_refused(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        read_yaml(path)
    assert not Path("pwned").exists()


# ---- the terminal ----


def test_control_characters_of_others_do_not_reach_the_terminal(capsys):
    error = UserError(hostile.TERMINAL, hostile.TERMINAL, hostile.TERMINAL)
    echo(hostile.TERMINAL)
    print_line(hostile.TERMINAL)
    print_table([[hostile.TERMINAL]], [hostile.TERMINAL], title=hostile.TERMINAL)
    echo(error, err=True)
    out, err = capsys.readouterr()
    for text in (out, err, str(error)):
        assert printable_text(text) == text and "\\x1b" in text


def test_an_error_is_one_line_of_limited_length():
    text = str(UserError("a\nb" * 10_000))
    assert "\n" not in text and len(text) < 5000
    assert printable_short_line("12\N{THIN SPACE}345 µs") == "12\N{THIN SPACE}345 µs"


def test_printed_json_of_hostile_texts_is_the_same_json():
    document = {"serial": hostile.TERMINAL, "emoji": "\N{SNOWMAN}", "tag": "\U000e0001"}
    text = json_text(document)
    assert json.loads(text) == document and printable_text(text) == text


# ---- spreadsheets ----


@pytest.mark.parametrize(
    "text", [hostile.FORMULA, "+1+cmd", "-2+3", "@SUM(A1)", " =1+1", "\n=1+1", "\uff1d1+1"]
)
def test_a_formula_in_a_text_cell_gets_an_apostrophe(text):
    table = pd.DataFrame({"name": [text], "value": [-1.5], "@head": ["plain"]})
    [head, row] = csv.reader(io.StringIO(csv_text(table), newline=""))
    assert row == [f"'{text}", "-1.5", "plain"] and head == ["name", "value", "'@head"]


@pytest.mark.parametrize("text", ["-1.5", "+2", "-1e-9", "-inf", "-", "node0", "a=b", "'x", ""])
def test_numbers_and_plain_texts_of_a_csv_file_are_unchanged(text):
    assert escape_formula(text) == text


# ---- archives ----


def test_a_zip_file_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w") as stream,
    ):
        for _ in range(64):
            stream.write(bytes(2**20))
    assert path.stat().st_size < 2**17
    with pytest.raises(UserError, match="larger than 1 MiB"):
        read_bundle(path)


def test_a_parquet_file_whose_texts_are_gigabytes_in_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.parquet"
    with duckdb.connect() as connection:
        query = "SELECT repeat('x', 10000) AS host FROM range(20000)"
        connection.sql(query).write_parquet(str(path), compression="zstd")
    assert path.stat().st_size < 2**17
    monkeypatch.setattr(tidy_table_parquet, "_MOST_TEXT_BYTES", 2**20)
    with pytest.raises(UserError, match="the texts have 200000000 bytes"):
        read_parquet_table(path)
    monkeypatch.setattr(tidy_table_parquet, "_MOST_TABLE_ROWS", 1000)
    with pytest.raises(UserError, match="20000 rows"):
        read_parquet_table(path)


# ---- XML ----

XML = """<?xml version="1.0"?><!DOCTYPE topology [{entities}]>
<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x1" complete_cpuset="0x1"
 allowed_cpuset="0x1" nodeset="0x1" allowed_nodeset="0x1"><info name="HostName" value="{value}"/>
<info name="x" value="y">{text}</info><object type="PU" os_index="0" cpuset="0x1"/></object>
</topology>"""


@pytest.mark.parametrize("with_hwloc", [True, False])
@pytest.mark.parametrize(
    ("entities", "value", "text"),
    [
        (
            "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10 if n else 'ha'}'>" for n in range(12)),
            "&e11;",
            "",
        ),
        ("<!ENTITY f SYSTEM 'file:///etc/passwd'>", "x", "&f;"),
        ("<!ENTITY % p SYSTEM 'http://127.0.0.1:9/x'> %p;", "x", ""),
    ],
    ids=["billion laughs", "external file", "parameter entity"],
)
def test_xml_with_entities_is_refused(tmp_path, monkeypatch, entities, value, text, with_hwloc):
    path = tmp_path / "a.xml"
    path.write_text(XML.format(entities=entities, value=value, text=text))
    if not with_hwloc:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"entities|XML|truncated"):
        discover_topology(str(path))


# ---- hosts: outputs of their programs, banners ----


@pytest.mark.thorough
def test_braces_in_what_a_tool_of_a_host_prints_are_not_evaluated_by_ansible(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(
        "#!/bin/sh\necho \"{{ lookup('pipe', 'touch pwned') }} \\$(touch pwned) 1.2\"\n"
    )
    tool.chmod(0o755)
    tasks = ROOT / "roles" / "toolchain" / "tasks" / "find_missing_tools.yml"
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {
            "ansible_facts": {"env": {"PATH": f"{tmp_path}:/usr/bin:/bin"}},
            "__toolchain_asked": ["tool"],
            "__toolchain_questions": {"tool": "tool --version"},
            "toolchain_minimum_versions": {"tool": "9"},
        },
        "tasks": [
            {"ansible.builtin.include_tasks": str(tasks)},
            {"ansible.builtin.debug": {"msg": "{{ __toolchain_answers.stdout }}"}},
            {"ansible.builtin.debug": {"msg": "{{ __toolchain_wanting }}"}},
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        ["ansible-playbook", "play.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "{{ lookup('pipe', 'touch pwned') }}" in done.stdout
    assert not list(tmp_path.rglob("pwned"))


def test_a_banner_of_an_ssh_server_cannot_control_the_terminal(tmp_path):
    cause = connection_error_cause(f"welcome\n{hostile.TERMINAL}{hostile.JINJA}")
    write_skipped_host_note(tmp_path, "a", cause)
    skipped = read_skipped_host(tmp_path)
    assert hostile.JINJA in skipped.reason
    for text in (str(UserError(cause)), printable_short_line(skipped.skip_time_and_reason)):
        assert printable_text(text) == text and hostile.JINJA in text

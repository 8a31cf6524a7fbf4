"""Bundles of profiles: what leaves a site, and what is accepted from others."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import zipfile
from pathlib import Path
from unicodedata import category

import duckdb
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_results import machine, write_results
from report_inputs import system_document

from chaosity.errors import UserError
from chaosity.store.profile_anonymisation import topology_without_private_facts
from chaosity.store.profile_bundles import import_bundle, publish_bundle, read_bundle
from chaosity.store.profile_database import (
    PROFILE_TABLES,
    find_profiles,
    read_profile_measurements,
    update_profiles_from_results,
)
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, write_parquet_table
from strategies import ODD_TEXTS

HOST = "db-prod-17.acme.example"
SERIAL = "S6XPNX0T412345"
USER = "alice@acme.example"
MISSING = object()
# What must not leave the site, each at the places where it really stands.
SECRETS = {
    "host": HOST,
    "short name": "db-prod-17",
    "domain": "acme.example",
    "serial": SERIAL,
    "module": "DIMM0SER1AL",
    "gpu": "GPU-5f2c-1324",
    "address": "192.168.77.41",
    "mac": "3c:ec:ef:12:34:56",
    "user": "alice",
    "path": "/scratch/alice",
    "cgroup": "user-4711",
    "note": "rack B7 shelf 3",
    "slot": "0000-21-00-0",
    "pci": "0000:21:00.0",
    "own": "zebra",
    "uuid": "4c4c4544-0042",
    "build": "acme1",
    "second": "T13:45",
}


@pytest.fixture(scope="module")
def parts(made):
    """The tables of a bundle."""
    return read_bundle(made / "good.zip")[0]


def secret_host(folder):
    """A host with all secrets at the places where they really stand."""
    found = machine(host=HOST, replicates=3)
    table = found.tidy()
    slot = next(name for name in found.components() if name.startswith("drive"))
    table["target"] = table["target"].replace(slot, f"drive-{SERIAL}")
    table["point"] = table["point"].str.replace(slot, f"drive-{SERIAL}")
    factors = {"zebra": "zebra", "pages": "/scratch/alice", "drives": 2}
    table["factors"] = json.dumps({"storage_node": f"drive-{SERIAL}", **factors})
    table["levels"] = json.dumps({"zebra": 1, "mode": HOST})
    table.loc[table.index[:30], "reason"] = f"{HOST}: /scratch/alice/file: 192.168.77.41 refused"
    table.loc[table.index[:30], "status"] = "failed"
    table.loc[table.index[:30], "value"] = pd.NA
    table["label"] = "variant of STREAM, by alice at acme.example"
    table.loc[table.index[40:60], ["experiment", "benchmark", "load", "kernel"]] = "zebra"
    table.loc[table.index[40:60], "category"] = "zebra"
    table.loc[table.index[60:70], "initiator"] = "db-prod-17"
    table["measured_at"] = "2026-11-20T13:45:00.000Z"
    documents = {
        name: {**one, "serial": SERIAL, "note": "rack B7 shelf 3", "pci": "0000:21:00.0"}
        for name, one in found.components().items()
    }
    gpu = {"component": "gpu", "model": "H100", "serial": "GPU-5f2c-1324", "pci": "x"}
    documents["gpu-0000-21-00-0"] = {**gpu, "memory_bytes": 2**36, "node": 0}
    documents[f"drive-{SERIAL}"] = documents.pop(slot)
    version = f"2.4 {USER} /scratch/alice {SERIAL}"
    firmware = {"bios_vendor": "AMI", "bios_version": version, "product_name": "db-prod-17"}
    modules = [{"slot": "A1", "size": "32 GB", "type": "DDR4", "serial": "DIMM0SER1AL"}]
    modules += [{"slot": "A2", "size": "32 GB", "type": f"of {USER} ({SERIAL})"}]
    system = system_document(
        firmware=firmware,
        microcode="0xa0011d1",
        memory_modules=modules,
        kernel_release="6.5.0-7-acme1",
        kernel_parameters=["pci=0000:21:00.0"],
        tools={"gcc": "/scratch/alice/gcc"},
    )
    topology = found.topology() | {
        "source": "/scratch/alice/topology.xml",
        "restrictions": {"cgroup": "/user.slice/user-4711.slice", "missing_cpus": ""},
        "host": {"name": HOST, "uuid": "4c4c4544-0042", "cpu_model": "AMD EPYC 7413"},
        "nics": [{"address": "3c:ec:ef:12:34:56"}],
    }
    place = write_results(
        folder, found, table=table, system=system, topology=topology, components=documents
    )
    xml = f'<topology><info name="HostName" value="{HOST}"/><info value="3c:ec:ef:12:34:56"/>'
    (place / "topology.xml").write_text(xml)
    return found


def everything_in(bundle, folder):
    """All bytes of a bundle, unzipped, and all text of its tables."""
    found = [bundle.read_bytes()]
    with zipfile.ZipFile(bundle) as archive:
        for name in archive.namelist():
            found += [name.encode(), archive.read(name)]
            if name.endswith(".parquet"):
                path = folder / f"of-{name}"
                path.write_bytes(archive.read(name))
                rows = duckdb.read_parquet(str(path)).df()
                found.append(rows.to_csv(index=False).encode())
    return b"\n".join(found).lower()


@pytest.fixture(scope="module")
def secret_database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secret")
    secret_host(folder / "results")
    update_profiles_from_results([folder / "results"], folder / "p.duckdb")
    return folder / "p.duckdb"


def test_a_bundle_contains_no_name_serial_address_or_path(secret_database, tmp_path):
    bundle = tmp_path / "b.zip"
    manifest = publish_bundle(secret_database, bundle)
    assert manifest["profiles"] == 1 and manifest["measurements"] > 50
    text = everything_in(bundle, tmp_path)
    held = {what for what, secret in SECRETS.items() if secret.lower().encode() in text}
    assert held == set()
    # What a bundle is for is in it.
    wanted = "amd epyc 7413,corsair mp600 pro,6.5.0-7,nps4,32 gb ddr4,variant of stream,"
    wanted += "ami 2.4 microcode 0xa0011d1,"
    for words in f"{wanted}memory_bandwidth,drive1".split(","):
        assert words.encode() in text, words


def test_names_are_kept_on_request_but_reasons_and_paths_never(secret_database, tmp_path):
    bundle = tmp_path / "b.zip"
    publish_bundle(secret_database, bundle, with_names=True, contact="someone")
    text = everything_in(bundle, tmp_path)
    for wanted in (HOST, SERIAL, "someone"):
        assert wanted.lower().encode() in text
    for what in ("path", "cgroup", "note", "address", "mac", "module", "user"):
        assert SECRETS[what].lower().encode() not in text, what


def test_aliases_differ_between_bundles(database, bundle, tmp_path):
    publish_bundle(database, tmp_path / "all.zip")
    (three, *_), (one, *_) = read_bundle(tmp_path / "all.zip"), read_bundle(bundle)
    names = set(three["profiles"]["host"])
    assert len(names) == 2 < len(three["profiles"])  # one host in two configurations
    assert all(host.startswith("host-") for host in names)
    assert not names & set(one["profiles"]["host"])


def test_a_topology_keeps_only_listed_keys():
    topology = {
        "packages": 2,
        "nodes": [{"os_index": 0, "cpus": "0-3", "serial": "X1"}],
        "host": {"cpu_model": "Xeon", "name": "h", "smt": "\x1b[31mon"},
        "nics": [{"model": "MT4125-X6", "kind": f"of {USER}"}],
        "configuration": SERIAL,
        "secret": "x",
    }
    found = topology_without_private_facts(topology)
    assert found["nodes"] == [{"os_index": 0, "cpus": "0-3"}]
    assert found["nics"] == [{"model": "MT4125-X6", "kind": None}]
    assert found["configuration"] is None
    assert found["host"]["cpu_model"] == "Xeon" and found["host"]["smt"] is None
    assert "secret" not in found and "name" not in found["host"]


def test_an_imported_profile_has_the_same_values_once(database, tmp_path):
    bundle, theirs = tmp_path / "b.zip", tmp_path / "theirs.duckdb"
    publish_bundle(database, bundle, configuration="nps4")
    assert import_bundle(bundle, theirs) == 2
    assert import_bundle(bundle, theirs) == 0
    own = {
        one["id"]: read_profile_measurements(database, one["id"]) for one in find_profiles(database)
    }
    found = find_profiles(theirs, cpu="epyc")
    assert len(found) == 2
    for one in found:
        assert one["origin"] == "imported" and json.loads(one["provenance"])["chaosity_version"]
        table = read_profile_measurements(theirs, one["id"])
        assert list(table.columns) == list(COLUMN_TYPES)
        values = sorted(table["value"].dropna())
        [same] = [rows for rows in own.values() if sorted(rows["value"].dropna()) == values]
        points = [len(rows[["experiment", "point"]].drop_duplicates()) for rows in (table, same)]
        assert points[0] == points[1]
    # What came from others is theirs to publish.
    with pytest.raises(UserError, match="no local profile that matches"):
        publish_bundle(theirs, tmp_path / "again.zip")
    assert not (tmp_path / "again.zip").exists()


def test_provenance_cannot_replace_the_digest_of_the_bundle(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as archive:
        provenance = json.loads(archive.read("manifest.json"))["provenance"]
    forged = {"provenance": {**provenance, "bundle": "0" * 64}}
    path, theirs = forge(bundle, tmp_path / "f.zip", manifest=forged), tmp_path / "theirs.duckdb"
    import_bundle(path, theirs)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for one in find_profiles(theirs):
        assert json.loads(one["provenance"])["bundle"] == digest


@pytest.mark.parametrize("name", ["b.tar.gz", "b", "zip"])
def test_a_bundle_with_the_name_of_another_kind_of_file_is_refused(database, tmp_path, name):
    with pytest.raises(UserError, match=r"a bundle is a zip file; .* ends in \.zip"):
        publish_bundle(database, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_bundle_that_nobody_could_import_is_not_published(database, tmp_path):
    path = tmp_path / "b.zip"
    with pytest.raises(UserError, match=r"contact: a text has 500 characters; allowed: 400"):
        publish_bundle(database, path, contact="x" * 500)
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE measurements SET measured_at = '2999-01-01T00:00:00.000Z'")
    with pytest.raises(UserError, match=r"measured_at: '2999-01-01' is not a date of a measur"):
        publish_bundle(database, path)
    assert not path.exists()


def forge(bundle, target, *, manifest=None, parts=None, keep_hashes=False):
    """Write a bundle again with another manifest and other parts; a part that is None is left out.

    Its hashes are those of the new parts, unless `keep_hashes`.
    """
    with zipfile.ZipFile(bundle) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    said = json.loads(held.pop("manifest.json"))
    held = {name: content for name, content in (held | (parts or {})).items() if content}
    if not keep_hashes:
        for name in said["parts"].keys() & held.keys():
            said["parts"][name]["sha256"] = hashlib.sha256(held[name]).hexdigest()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(said | (manifest or {})))
        for name, content in held.items():
            archive.writestr(name, content)
    return target


def changed_part(folder, parts, part, column, value):
    """Return a part of a bundle with another value in the first row, or without a column."""
    rows = parts[part].copy()
    if value is MISSING:
        rows = rows.drop(columns=column)
    else:
        rows.loc[rows.index[0], column] = value
    path = folder / "changed.parquet"
    write_parquet_table(
        rows, path, {n: kind for n, kind in PROFILE_TABLES[part].items() if n in rows}
    )
    return {f"{part}.parquet": path.read_bytes()}


def refused(path, tmp_path, words):
    theirs = tmp_path / "theirs.duckdb"
    with pytest.raises(UserError, match=words):
        import_bundle(path, theirs)
    assert not theirs.exists()


def test_a_file_that_is_not_a_bundle_is_refused(bundle, tmp_path):
    other = tmp_path / "other.zip"
    for content in (b"hello", bundle.read_bytes()[:-200]):
        other.write_bytes(content)
        refused(other, tmp_path, "is not a bundle of profiles")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused(other, tmp_path, "it has no manifest")
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"{}" * 100)
    content = other.read_bytes()
    start = content.index(b"manifest.json") + len("manifest.json")
    other.write_bytes(content[:start] + b"\xff\xff" + content[start + 2 :])
    refused(other, tmp_path, "is not a bundle of profiles: Error -3 while decompressing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"manifest": {"bundle": "photos"}}, "the kind 'photos', not 'chaosity profiles'"),
        ({"manifest": {"schema_version": float("inf")}}, "the manifest of the bundle is broken"),
        (
            {"manifest": {"schema_version": 2}},
            r"\(schema 2; supported: 1\); install a newer version",
        ),
        ({"manifest": {"schema_version": 0}}, "the manifest of the bundle does not fit its parts"),
        (
            {"manifest": {"provenance": {"contact": "\ud800"}}},
            "the manifest of the bundle is broken",
        ),
        ({"manifest": {"profiles": "two"}}, "profiles: the value 'two' is not of type integer"),
        ({"manifest": {"parts": {}}}, "the manifest of the bundle does not fit its parts"),
        ({"manifest": {"provenance": {"published_on": "soon"}}}, "published_on: 'soon' is not a"),
        ({"manifest": {"provenance": {"licence": "x" * 500}}}, "licence: a text has 500 charact"),
        ({"manifest": {"provenance": {"\x1b[31m": None}}}, "a text has control characters"),
        ({"parts": {"../../evil": b"x"}}, "has the unknown part '../../evil'"),
        ({"parts": {"/etc/evil": b"x"}}, "has the unknown part '/etc/evil'"),
        ({"parts": {"extra.parquet": b"x"}}, "has the unknown part 'extra.parquet'"),
        ({"parts": {"profiles.parquet": None}}, "lacks the part 'profiles.parquet'"),
        ({"parts": {"components.parquet": b"PAR1 and no more"}}, "is not a Parquet file"),
        ({"parts": {"components.parquet": b"x"}, "keep_hashes": True}, "the hash differs from"),
    ],
)
def test_a_bundle_with_a_wrong_manifest_or_part_is_refused(bundle, tmp_path, change, words):
    refused(forge(bundle, tmp_path / "f.zip", **change), tmp_path, words)
    assert not (tmp_path.parent.parent / "evil").exists()


@pytest.mark.parametrize(
    ("part", "column", "value", "words"),
    [
        ("measurements", "value", -3.0, "value: a row has the number -3; a number is 0 or from"),
        (
            "measurements",
            "value",
            None,
            r"valid and the value none; a valid row has a finite value",
        ),
        ("measurements", "value", 1e308, r"the number 1e\+308; a number is 0 or from 1e-18"),
        ("measurements", "value", 1e-300, "value: a row has the number 1e-300"),
        ("measurements", "threads", -1, "threads: a row has the number -1"),
        ("measurements", "measured_at", "2026-02-30", "'2026-02-30' is not a date"),
        ("measurements", "status", "failed", r"replicate 1 of the point \w+ has the status failed"),
        ("measurements", "host", "localhost", "another host or configuration than its profile"),
        ("measurements", "profile", "0" * 16, "profile: a row is of a profile that the bundle do"),
        ("measurements", "levels", "[1]", "levels: a text is not a JSON object"),
        ("measurements", "factors", '{"a":1,}', "factors: a text is not a JSON object"),
        ("measurements", "kernel", "\x1b]0;x\x07", "kernel: a text has control characters"),
        ("measurements", "relation", "a\u202eb", "relation: a text has control characters"),
        ("measurements", "label", "x" * 500, "label: a text has 500 characters; allowed: 400"),
        ("measurements", "initiator", None, "initiator: a row has no value"),
        ("measurements", "metric", MISSING, "the column 'metric' is missing"),
        ("components", "profile", "0" * 16, "of a profile that the bundle does not have"),
        ("profiles", "measured_to", "not a date", "measured_to: 'not a date' is not a date"),
        ("profiles", "measured_from", "9999-01-01", "'9999-01-01' is not a date of a meas"),
        ("profiles", "cores", 2**62, r"cores: a row has the number 4\.6"),
        ("profiles", "id", "x' OR 1=1", "an id that is not 16 hexadecimal digits"),
        ("profiles", "host", None, "host: a row has no value"),
        ("profiles", "topology", '{"a":' * 100_000 + "1" + "}" * 100_000, "not a JSON object"),
    ],
)
def test_impossible_rows_are_refused(bundle, parts, tmp_path, part, column, value, words):
    changed = changed_part(tmp_path, parts, part, column, value)
    refused(forge(bundle, tmp_path / "f.zip", parts=changed), tmp_path, f"{part}.parquet.*{words}")


def test_two_profiles_with_one_id_are_refused(database, tmp_path):
    publish_bundle(database, tmp_path / "b.zip", configuration="nps4")
    parts = read_bundle(tmp_path / "b.zip")[0]
    twice = changed_part(tmp_path, parts, "profiles", "id", parts["profiles"]["id"].iloc[1])
    bent = forge(tmp_path / "b.zip", tmp_path / "f.zip", parts=twice)
    refused(bent, tmp_path, "profiles.parquet, id: two profiles have the same id")


ODD = {
    "string": st.sampled_from(ODD_TEXTS) | st.text(max_size=12),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "Float64": st.floats(),
    "boolean": st.booleans(),
}
COLUMNS_OF_PARTS = [(part, name) for part, kinds in PROFILE_TABLES.items() for name in kinds]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(COLUMNS_OF_PARTS), st.data())
def test_any_value_is_possible_or_refused_with_its_column(made, parts, place, data):
    part, column = place
    value = data.draw(st.none() | ODD[PROFILE_TABLES[part][column]])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changed = changed_part(folder, parts, part, column, value)
        try:
            read_bundle(forge(made / "good.zip", folder / "f.zip", parts=changed))
        except UserError as error:
            # Other tables have the keys too, and a status fits to a value.
            if column not in ("id", "profile", "host", "configuration", "status"):
                assert f"{part}.parquet, {column}: " in str(error)
            return
    if isinstance(value, str):
        assert len(value) <= 400 and "Cc" not in map(category, value)
    elif isinstance(value, int | float):
        assert value == 0 or 1e-18 <= value <= 1e18 or math.isnan(value)

"""Any table, database or bundle of others gives values or one sentence."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from chaosity.compare.selections import read_selections
from chaosity.documents.shipped_documents import PUBLISHED_FOLDER, yaml_file_names
from chaosity.store.csv_tables import read_distances_csv, read_matrix_csv, read_published_csv
from chaosity.store.measurements import Measurements
from chaosity.store.profile_bundles import import_bundle, publish_bundle
from chaosity.store.profile_database import (
    PROFILE_TABLES,
    find_profiles,
    read_profile_tables,
    update_profiles_from_results,
)
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, read_parquet_table, write_parquet_table
from strategies import (
    ODD_NUMBERS,
    ODD_TEXTS,
    Draw,
    change_bytes,
    change_document,
    change_text,
    changed,
    check_any_input,
    simulated_records,
    write_text,
)

MATRIX = "initiator,mem_0,mem_1\n0,120.5,60\n1,61,-\n0,119,59.5\n1,62,121\n"
SLIT = "node;0;1\n0;10;21\n1;21;10\n"
SWEEP = (
    "mode,rank,core,cpu_node,mem_node,size_MB,latency_ns\n"
    "serial,0,0,0,0,1,20\nconcurrent,0,0,0,0,64,110\n"
)
# A table for each form of templates/published; the other forms are matrices.
PUBLISHED_TABLES = {
    "fio_numa": "cpu_node,nvme_node,bandwidth_Bps_label\n0,1,189M\n",
    "numa_bench": SWEEP,
    "stream_placement": "policy,cpu_nodes,mem_nodes,slurm_job,triad_best_MBps\nbind,0-1,1,7,9000\n",
    "table_1": "compute_units,memory_bandwidth_GBps\n8 P-cores with GPU,120.5\n",
}
FORM = (PUBLISHED_FOLDER / "numa_bench.yaml").read_text()
cells = st.sampled_from(("node0", "mem_1", "10", "189M", *ODD_NUMBERS)) | st.text(max_size=6)
any_csv = st.lists(st.lists(cells, min_size=1, max_size=5).map(",".join), max_size=6).map("\n".join)


@cache
def made() -> dict[str, bytes]:
    """Return a tidy table, a database and a bundle of it, made of simulated records."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = folder / "results/host/snc1"
        for record in simulated_records()[:12]:
            point = record["point"]
            write_text(
                place / "points" / point["experiment"] / f"{point['point']}.json", json.dumps(point)
            )
            path = place / point["experiment"] / point["point"] / "rep1.json"
            write_text(path, json.dumps(record))
        table = build_tidy_table(place / "points", place).assign(origin=None, reference=None)
        write_parquet_table(table.astype(COLUMN_TYPES), place / "measurements.parquet")
        drive = {"component": "drive", "model": "X", "node": 0, "size_bytes": 10**12}
        write_text(place / "components/drive-0.json", json.dumps(drive))
        database, bundle = folder / "p.duckdb", folder / "b.zip"
        update_profiles_from_results([folder / "results"], database)
        publish_bundle(database, bundle)
        paths = {"table": place / "measurements.parquet", "database": database, "bundle": bundle}
        return {kind: path.read_bytes() for kind, path in paths.items()}


def change_table(draw: Draw, data: bytes, kinds: dict[str, str] = COLUMN_TYPES) -> bytes:
    """Change a value, a column or the rows of a Parquet file; texts where no number fits."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.parquet"
        path.write_bytes(data)
        try:
            table = read_parquet_table(path, kinds).astype(object)
        except Exception:  # an earlier change removed a column
            return change_bytes(draw, data)
        column = draw(st.sampled_from(list(table.columns)))
        kind = draw(st.sampled_from(("values", "values", "no column", "name", "rows")))
        if kind == "no column":
            table = table.drop(columns=[column])
        elif kind == "name":
            table = table.rename(columns={column: "other"})
        elif kind == "rows":
            table = table.iloc[: draw(st.integers(0, 3))]
        else:
            value = draw(st.sampled_from((*ODD_TEXTS, *ODD_NUMBERS, None, -1, 2**62, 1e308)))
            table = table.assign(**{column: value})
        types = {each: kinds.get(each, "string") for each in table.columns}
        try:
            table = table.astype(types)
        except (TypeError, ValueError, OverflowError):
            types = dict.fromkeys(table.columns, "string")
            table = table.astype(str)
        write_parquet_table(table, path, types)
        return path.read_bytes()


@st.composite
def bundles(draw: Draw) -> bytes:
    """Return bundles with a changed part, whose digest fits, so that the part itself is read."""
    with zipfile.ZipFile(io.BytesIO(made()["bundle"])) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(parts)))
    if name == "manifest.json":
        parts[name] = json.dumps(change_document(draw, json.loads(parts[name]))).encode()
    else:
        parts[name] = draw(
            changed([parts[name]], lambda *a: change_table(*a, PROFILE_TABLES[Path(name).stem]), 1)
        )
        manifest = json.loads(parts["manifest.json"])
        manifest["parts"][name]["sha256"] = hashlib.sha256(parts[name]).hexdigest()
        parts["manifest.json"] = json.dumps(manifest).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
        if draw(st.integers(0, 5)) == 0:
            archive.writestr(draw(st.sampled_from(("../x", "/x", "a\\b"))), b"x")
    data = stream.getvalue()
    return change_bytes(draw, data) if draw(st.integers(0, 5)) == 0 else data


def parse_matrix(text: str, folder: Path) -> None:
    path = write_text(folder / "matrix.csv", text)
    matrix = read_matrix_csv(path, "latency" if len(text) % 2 else "bandwidth")
    assert all(value > 0 for values in matrix.samples.values() for value in values)


def parse_distances(text: str, folder: Path) -> None:
    distances = read_distances_csv(write_text(folder / "slit.csv", text))
    assert all(value > 0 for value in distances.values())


@st.composite
def published(draw: Draw) -> tuple[str, str]:
    """Return the name of a form, and a changed table, or any cells below the words of the form."""
    form = draw(st.sampled_from(yaml_file_names(PUBLISHED_FOLDER)))
    text = PUBLISHED_TABLES.get(form, MATRIX)
    if draw(st.integers(0, 3)) > 0:
        return form, draw(changed([text], change_text))
    words = set((PUBLISHED_FOLDER / f"{form}.yaml").read_text().replace("}", " ").split())
    head = sorted(filter(str.isidentifier, words))
    row = draw(st.lists(cells, min_size=len(head), max_size=len(head)))
    return form, f"{','.join(head)}\n{','.join(row)}\n"


def parse_published(given: tuple[str, str], folder: Path) -> None:
    table = read_published_csv(write_text(folder / "p.csv", given[1]), given[0], "theirs")
    assert list(table) == list(COLUMN_TYPES)
    write_parquet_table(table, folder / "published.parquet")


def parse_form(text: str, folder: Path) -> None:
    write_text(folder / "numa_bench.yaml", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chaosity.store.csv_tables.PUBLISHED_FOLDER", folder)
        parse_published(("numa_bench", SWEEP), folder)


def parse_table(data: bytes, folder: Path) -> None:
    path = folder / "measurements.parquet"
    path.write_bytes(data)
    table = read_parquet_table(path)
    assert list(table) == list(COLUMN_TYPES)
    Measurements.from_table(table)
    read_selections([str(path)])


def parse_database(data: bytes, folder: Path) -> None:
    path = folder / "profiles.duckdb"
    path.write_bytes(data)
    read_profile_tables(path, [profile["id"] for profile in find_profiles(path)])
    read_selections([str(path)])


def parse_bundle(data: bytes, folder: Path) -> None:
    path = folder / "bundle.zip"
    path.write_bytes(data)
    import_bundle(path, folder / "mine.duckdb")
    json.dumps(find_profiles(folder / "mine.duckdb"))


# Name -> its inputs, its parser and its share of the examples.
CASES: dict[
    str, tuple[Callable[[], st.SearchStrategy[Any]], Callable[[Any, Path], None], float]
] = {
    "matrix": (lambda: changed([MATRIX, SLIT], change_text) | any_csv, parse_matrix, 0.4),
    "distances": (lambda: changed([MATRIX, SLIT], change_text) | any_csv, parse_distances, 0.2),
    "published table": (published, parse_published, 0.2),
    "form": (
        lambda: (
            changed([yaml.safe_load(FORM)], change_document).map(json.dumps)
            | changed([FORM], change_text)
        ),
        parse_form,
        0.2,
    ),
    "tidy table": (
        lambda: (
            changed([made()["table"]], change_table, 2) | changed([made()["table"]], change_bytes)
        ),
        parse_table,
        0.03,
    ),
    "profile database": (lambda: changed([made()["database"]], change_bytes), parse_database, 0.05),
    "bundle": (bundles, parse_bundle, 0.05),
}


@pytest.mark.parametrize("name", CASES)
def test_any_input_gives_a_value_or_one_sentence(name: str, tmp_path: Path) -> None:
    inputs, parse, share = CASES[name]
    check_any_input(inputs(), parse, tmp_path, share)

"""Parsers of tables: CSV files, Parquet files, databases and bundles of others."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import tempfile
import zipfile
from pathlib import Path

import pandas as pd
from hypothesis import strategies as st

from chaosity.checked_yaml_files import PUBLISHED, ROOT, yaml_file_names
from chaosity.cli.anova import _read_csv_texts
from chaosity.compare.selections_to_compare import read_selections
from chaosity.health.check_history import read_check_history
from chaosity.health.check_series import COLUMNS as SERIES_COLUMNS
from chaosity.health.check_series import SERIES_FILE, earlier_values, last_checks, read_series
from chaosity.health.components_of_checks import STATES_FILE, ComponentLog
from chaosity.health.judge_check_values import Expectation, MapValue
from chaosity.statistics.anova import analyse_variance
from chaosity.store.add_profiles_to_database import update_profiles_from_results
from chaosity.store.measurements import Measurements
from chaosity.store.profile_bundles import import_bundle, publish_bundle
from chaosity.store.profile_database import TABLES, find_profiles, read_profile_tables
from chaosity.store.read_node_matrix_csv import read_distances_csv, read_matrix_csv
from chaosity.store.read_published_csv import read_published_csv
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.store.tidy_table_parquet import COLUMNS, read_parquet_table, write_parquet_table
from fuzz.mutations import (
    ODD_NUMBERS,
    ODD_TEXTS,
    change_bytes,
    change_document,
    change_text,
    mutated,
)
from fuzz.watched_parser import Parser
from machines import check_points

FILES = ROOT / "tests" / "data" / "command_files"
MATRIX = "initiator,mem_0,mem_1\n0,120.5,60\n1,61,-\n0,119,59.5\n1,62,121\n"
SLIT = "node;0;1\n0;10;21\n1;21;10\n"
# A row of a CSV file for each form of templates/published; other forms are matrices.
PUBLISHED_ROWS = {
    "fio_numa": "cpu_node,nvme_node,bandwidth_Bps_label\n0,1,189M\n",
    "numa_bench": (FILES / "sweep.csv").read_text(),
    "stream_placement": "policy,cpu_nodes,mem_nodes,slurm_job,triad_best_MBps\nbind,0-1,1,7,9000\n",
    "table_1": "compute_units,memory_bandwidth_GBps\n8 P-cores with GPU,120.5\n",
}
NUMBERS = ("0", "1", "12.5", "189M", "-", "", *ODD_NUMBERS)


def change_cells(generator: random.Random, text: str) -> str:
    """Change one cell of a CSV file, or its lines."""
    lines = text.splitlines()
    if not lines or generator.randrange(3) == 0:
        return change_text(generator, text)
    at = generator.randrange(len(lines))
    cells = lines[at].split(",")
    cell = generator.randrange(len(cells))
    cells[cell] = generator.choice((*NUMBERS, *ODD_TEXTS, '"', '"a\n"', "0" * 200))
    lines[at] = ",".join(cells)
    return "\n".join(lines) + "\n"


def generated_csv() -> st.SearchStrategy[str]:
    """Return CSV files of any cells."""
    cell = st.sampled_from(("node0", "mem_1", "10", *NUMBERS)) | st.text(max_size=6)
    rows = st.lists(st.lists(cell, min_size=1, max_size=5).map(",".join), max_size=6)
    return rows.map("\n".join)


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def _parse_matrix(text: str, folder: Path) -> None:
    metric = "latency" if len(text) % 2 else "bandwidth"
    matrix = read_matrix_csv(_write(folder, "matrix.csv", text), metric)
    assert all(value > 0 for values in matrix.samples.values() for value in values)


def _parse_distances(text: str, folder: Path) -> None:
    assert all(value > 0 for value in read_distances_csv(_write(folder, "s.csv", text)).values())


def _published_samples() -> list[tuple[str, str]]:
    found = []
    for form in yaml_file_names(PUBLISHED):
        found.append((form, PUBLISHED_ROWS.get(form, MATRIX)))
    return found


def _change_published(generator: random.Random, sample: tuple[str, str]) -> tuple[str, str]:
    form, text = sample
    if generator.randrange(3) == 0:  # the columns that the form reads, whatever they are
        document = (PUBLISHED / f"{form}.yaml").read_text()
        words = sorted({word for word in document.replace("}", " ").split() if word.isidentifier()})
        names = generator.sample(words, min(len(words), 12))
        cells = [generator.choice(("0", "1", "triad", *NUMBERS, *ODD_TEXTS)) for _ in names]
        return form, ",".join(names) + "\n" + ",".join(cells) + "\n"
    return form, change_cells(generator, text)


def _parse_published(sample: tuple[str, str], folder: Path) -> None:
    table = read_published_csv(_write(folder, "published.csv", sample[1]), sample[0], "theirs")
    assert list(table) == list(COLUMNS)
    write_parquet_table(table, folder / "published.parquet")


ANOVA = "node,kernel,run,MBps\n" + "".join(
    f"{node},{kernel},{run},{100 + 10 * node + run}\n"
    for node in (0, 1)
    for kernel in ("copy", "triad")
    for run in (1, 2, 3)
)


def _parse_anova(text: str, folder: Path) -> None:
    table = _read_csv_texts(_write(folder, "speeds.csv", text))
    analyse_variance(table, "MBps", ["node", "kernel"], "run", "auto").to_json()


COMPONENTS_OF_CHECKS = "".join(
    json.dumps(
        {
            "since": f"2026-11-{day}T01:00:00.000Z",
            "content": {
                "system": {"component": "system", "kernel_release": kernel},
                "drive-0000-01-00-0": {"component": "drive", "serial": f"S{day}", "size_bytes": 1},
            },
        }
    )
    + "\n"
    for day, kernel in (("01", "6.1.1"), ("24", "6.1.2"))
)
CHECKS = ",".join(SERIES_COLUMNS) + "".join(
    f"\n2026-11-2{night}T01:00:00.000Z,memory_bandwidth,memory={point},"
    f"bandwidth_bytes_per_second,{4e10 + night},1,4e10,0.01,0.05,no"
    for night in range(4)
    for point in ("node0+node0+triad", "node1+node1+triad")
)


def _parse_checks(text: str, folder: Path) -> None:
    _write(folder, SERIES_FILE, text)
    rows = read_series(folder)
    last_checks(rows)
    known = MapValue(4e10, 3, 1e-4)
    Expectation({("memory_bandwidth", "memory=node0+node0+triad"): known}, earlier_values(rows, {}))
    if rows:
        point = made_point()
        _write(folder, f"points/{point['experiment']}/{point['point']}.json", json.dumps(point))
        read_check_history(folder).sentences()


@functools.cache
def made_point() -> dict[str, object]:
    """Return a point of a check, under the name that `CHECKS` has."""
    [check, *_] = [each for each in check_points() if each.parts == ("node0",)]
    return {**check.point, "experiment": "memory_bandwidth", "point": "memory=node0+node0+triad"}


def _parse_components_of_checks(text: str, folder: Path) -> None:
    _write(folder, STATES_FILE, text)
    log = ComponentLog(folder)
    log.differences("2026-11-01T01:00:00.000Z", "2026-11-30T01:00:00.000Z")
    list(log.replacements("drive-0000-01-00-0"))


@functools.cache
def made() -> tuple[dict[str, bytes], pd.DataFrame]:
    """Return a database, a bundle and tables of them, made of simulated records, and the table."""
    from fuzz.record_parsers import records

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = folder / "results" / "host" / "nps4"
        for record in records()[:12]:
            point = record["point"]
            for path, document in (
                (place / "points" / point["experiment"] / f"{point['point']}.json", point),
                (place / point["experiment"] / point["point"] / "rep1.json", record),
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(document))
        table = build_tidy_table(place / "points", place).assign(origin=None, reference=None)
        table = table.astype(COLUMNS)
        write_parquet_table(table, place / "measurements.parquet")
        (place / "components").mkdir()
        drive = {"component": "drive", "model": "X", "node": 0, "size_bytes": 10**12}
        (place / "components" / "drive-0.json").write_text(json.dumps(drive))
        database, bundle = folder / "p.duckdb", folder / "b.zip"
        update_profiles_from_results([folder / "results"], database)
        publish_bundle(database, bundle)
        files = {
            "table": (place / "measurements.parquet").read_bytes(),
            "database": database.read_bytes(),
            "bundle": bundle.read_bytes(),
        }
        return files, table


def change_table(generator: random.Random, table: pd.DataFrame) -> pd.DataFrame:
    """Change a value, a column or the rows of a table."""
    table = table.astype(object)
    column, kind = generator.choice(list(table.columns)), generator.randrange(6)
    if kind == 0:
        return table.drop(columns=[column])
    if kind == 1:
        name = generator.choice(ODD_TEXTS)[:40].replace("\0", "0").replace('"', "'")
        return table.rename(columns={column: name or "other"})
    if kind == 2:
        return table.iloc[: generator.randrange(len(table) + 1)]
    if not len(table):
        return table
    row = generator.randrange(len(table))
    value = generator.choice((*ODD_TEXTS, *ODD_NUMBERS, None, -1, 2**62, float("nan"), 1e308, True))
    if kind == 3:
        return table.assign(**{column: value})
    table.iloc[row, list(table.columns).index(column)] = value
    return table


def _parquet(table: pd.DataFrame) -> bytes:
    """Return a table as Parquet: with its own types where the values fit, else as texts."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.parquet"
        kinds = {column: COLUMNS.get(column, "string") for column in map(str, table.columns)}
        try:
            write_parquet_table(table.astype(kinds), path, kinds)
        except Exception:  # the values do not fit
            texts = table.astype(str)
            write_parquet_table(texts, path, dict.fromkeys(map(str, table.columns), "string"))
        return path.read_bytes()


def _parse_parquet(data: bytes, folder: Path) -> None:
    path = folder / "measurements.parquet"
    path.write_bytes(data)
    table = read_parquet_table(path)
    assert list(table) == list(COLUMNS)
    Measurements.from_table(table)
    read_selections([str(path)])


def _parse_database(data: bytes, folder: Path) -> None:
    path = folder / "profiles.duckdb"
    path.write_bytes(data)
    found = find_profiles(path)
    read_profile_tables(path, [profile["id"] for profile in found])
    read_selections([str(path)])


def _bundle(parts: dict[str, bytes], seed: int) -> bytes:
    """Return a zip file whose hashes fit, so that the parts themselves are read."""
    generator, stream = random.Random(seed), io.BytesIO()
    manifest = json.loads(parts["manifest.json"])
    if isinstance(manifest, dict) and isinstance(manifest.get("parts"), dict):
        for name, part in manifest["parts"].items():
            if name in parts and isinstance(part, dict):
                part["sha256"] = hashlib.sha256(parts[name]).hexdigest()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in parts.items():
            text = json.dumps(manifest).encode() if name == "manifest.json" else content
            archive.writestr(name, text)
        if seed and generator.randrange(4) == 0:
            archive.writestr(generator.choice(("../x", "/x", "y.parquet", "a\\b")), b"x")
    return stream.getvalue()


def _parts() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(made()[0]["bundle"])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _change_parts(generator: random.Random, parts: dict[str, bytes]) -> dict[str, bytes]:
    name = generator.choice(sorted(parts))
    if name == "manifest.json":
        changed = change_document(generator, json.loads(parts[name]))
        return {**parts, name: json.dumps(changed).encode()}
    if generator.randrange(4) == 0:
        return {**parts, name: change_bytes(generator, parts[name])}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        path.write_bytes(parts[name])
        kinds = TABLES[name.removesuffix(".parquet")]
        try:
            table = change_table(generator, read_parquet_table(path, kinds))
            for column in table.columns:
                if column in kinds and not kinds[column].startswith("string"):
                    table[column] = pd.to_numeric(table[column], errors="coerce")
            wanted = {str(column): kinds.get(column, "string") for column in table.columns}
            write_parquet_table(table.astype(wanted), path, wanted)
        except Exception:  # an earlier change broke the part, or the value does not fit
            return {**parts, name: change_bytes(generator, parts[name])}
        return {**parts, name: path.read_bytes()}


def _parse_bundle(data: bytes, folder: Path) -> None:
    path = folder / "bundle.zip"
    path.write_bytes(data)
    import_bundle(path, folder / "mine.duckdb")
    for profile in find_profiles(folder / "mine.duckdb"):
        json.dumps(profile)


def _bundle_inputs() -> st.SearchStrategy[bytes]:
    parts = mutated([_parts()], _change_parts, 2)
    return st.one_of(
        *[st.builds(_bundle, parts, st.integers(0, 50))] * 3,
        mutated([made()[0]["bundle"]], change_bytes),
    )


def parsers() -> list[Parser]:
    """Return the parsers of this family."""
    matrices = [MATRIX, SLIT, *((path.read_text()) for path in sorted(FILES.glob("*.csv")))]
    return [
        Parser(
            "matrix CSV",
            "matrices of node x node, for `anomalies`, `weights` and `published`",
            lambda: st.one_of(mutated(matrices, change_cells), generated_csv()),
            _parse_matrix,
            examples=200,
        ),
        Parser(
            "distances CSV",
            "the SLIT of another machine",
            lambda: st.one_of(mutated([SLIT, MATRIX], change_cells), generated_csv()),
            _parse_distances,
            examples=100,
        ),
        Parser(
            "published CSV",
            "measurements of others, in each form of templates/published",
            lambda: mutated(_published_samples(), _change_published),
            _parse_published,
            examples=150,
        ),
        Parser(
            "anova CSV",
            "a table of values and factors, from a user",
            lambda: st.one_of(mutated([ANOVA], change_cells, 2), generated_csv()),
            _parse_anova,
            examples=60,
        ),
        Parser(
            "series of checks",
            "checks.csv, which a person may have edited",
            lambda: st.one_of(mutated([CHECKS], change_cells, 2), generated_csv()),
            _parse_checks,
            examples=100,
        ),
        Parser(
            "components of checks",
            "check_components.jsonl, which a person may have edited",
            lambda: mutated([COMPONENTS_OF_CHECKS], change_text),
            _parse_components_of_checks,
            examples=100,
        ),
        Parser(
            "tidy table",
            "measurements.parquet of others, for compare",
            lambda: st.one_of(
                mutated([made()[1]], change_table, 2).map(_parquet),
                mutated([made()[0]["table"]], change_bytes),
            ),
            _parse_parquet,
            examples=60,
        ),
        Parser(
            "profile database",
            "profiles.duckdb of others",
            lambda: mutated([made()[0]["database"]], change_bytes),
            _parse_database,
            examples=25,
        ),
        Parser(
            "bundle",
            "a zip file of profiles of others",
            _bundle_inputs,
            _parse_bundle,
            examples=25,
        ),
    ]

"""Numbers of the five papers, compared with the simulated machines that describe their servers.

The model gives each simulated number without noise, for the experiment that repeats the paper's
figure. The functions of the report compute ANOVA and crossovers from such numbers. The rows are
data in bench/papers.yaml: the number of a paper, and its place in the tidy table. Some numbers of
the papers were used to describe the machines, so agreement proves nothing for these numbers.
Document 002 has no row, because it needs two runs: BWAP uses measured weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import DEFAULT_CONFIG_FILE, ROOT
from chaosity.statistics.anova import find_anova_studies
from chaosity.store.measurements import Measurements
from machines import SimulatedHost, planned

ROWS = Path(__file__).with_suffix(".yaml")
PUBLISHED = ROOT / "tests/data/published"
SCALES = {"GB/s": 1e-9, "ns": 1.0, "": 1.0, "%": 1.0}
HEADS = ("paper", "figure or section", "number", "paper's", "simulated", "difference", "why")


@cache
def _document() -> Mapping[str, Any]:
    return read_yaml(ROWS)


@cache
def _host(name: str) -> SimulatedHost:
    """Return a simulated machine of the data file, with the plan of its experiments."""
    about = dict(_document()["machines"][name])
    config = read_config(DEFAULT_CONFIG_FILE.with_name(f"{about.pop('config', 'config')}.yaml"))
    machine, topology = about.pop("machine"), about.pop("topology", None)
    return planned(machine, topology, None, all_points=True, **{**config, **about})


@cache
def _truth(name: str) -> pd.DataFrame:
    """Return the rows of the first replicate without noise, with each level as a column."""
    rows = _host(name).true_table.rows
    rows = rows[rows["replicate"] == 1].reset_index(drop=True)
    levels = pd.DataFrame([*map(json.loads, rows["factors"])])
    return rows.join(levels[[name for name in levels if name not in rows]])


@cache
def _with_derived_metrics(name: str) -> Measurements:
    """Return the tidy table of all records, with noise and with derived metrics."""
    host = _host(name)
    return host.table_with_derived_metrics(host.records())


def _value(machine: str, metric: str, where: Mapping[str, Any]) -> float:
    """Return the median of the selected values without noise."""
    rows = _truth(machine)
    rows = rows[rows["metric"] == metric]
    for column, wanted in where.items():
        rows = rows[rows[column].isin(wanted if isinstance(wanted, list) else [wanted])]
    if rows.empty:
        raise ValueError(f"{machine}: no {metric} with {dict(where)}")
    return float(rows["value"].median())


def _share_of_variation(machine: str, metric: str, term: str, transform: str) -> float:
    """Return the share of the variation that a term of the analysis of variance explains."""
    [study] = [
        one
        for one in find_anova_studies(_with_derived_metrics(machine))
        if one.metric == metric and one.where.get("initiator_kind", "machine") == "machine"
    ]
    terms = study.analyse_variance_of_table(transform).terms
    return next(each.variation_percent for each in terms if each.name == term)


def _crossover(machines: tuple[str, str], where: Mapping[str, Any]) -> float:
    """Return the traffic at which the latency under load of two machines is equal."""
    curves = []
    for machine in machines:
        rows = _truth(machine)
        points = rows[(rows["load"] == "traffic") & (rows["metric"] == "traffic_bytes_per_second")]
        for column, wanted in where.items():
            points = points[points[column] == wanted]
        chases = rows[(rows["metric"] == "latency_ns") & (rows["load"] == "chase")]
        latency = chases.groupby("point")["value"].mean()
        pairs = sorted(zip(points["value"], points["point"].map(latency), strict=True))
        curves.append(np.array(pairs))
    traffic = np.linspace(0.0, max(curve[-1, 0] for curve in curves), 10_000)
    ends = min(curve[-1, 0] for curve in curves)
    first, second = (np.interp(traffic, *curve.T) for curve in curves)
    sooner = np.flatnonzero((first > second) & (traffic < ends))
    return float(traffic[sooner[0]]) if len(sooner) else float("nan")


def _published(about: Any) -> float:
    """Return a number of a paper: itself, or the median of rows of a file of published numbers."""
    if not isinstance(about, Mapping):
        return float(about)
    rows = pd.read_csv(PUBLISHED / about["file"])
    for column, wanted in about["where"].items():
        rows = rows[rows[column].isin(wanted if isinstance(wanted, list) else [wanted])]
    return float(rows[about["column"]].median())


def _simulated(row: Mapping[str, Any]) -> float:
    machine, metric, scale = row["machine"], row.get("metric", ""), SCALES[row["unit"]]
    if "variation" in row:
        return _share_of_variation(machine, metric, row["variation"], row["transform"])
    if "crossover_with" in row:
        return scale * _crossover((machine, row["crossover_with"]), row["where"])
    value = _value(machine, metric, row["where"])
    if "minus" in row:
        value -= _value(row["minus"], metric, row["where"])
    if "per" in row:
        value /= _value(machine, metric, {**row["where"], **row["per"]})
    return scale * value


def _number(value: float) -> str:
    return f"{value:.3g}"


def papers(_: int) -> Iterator[str]:
    """Yield the lines of a table with a row for each number of a paper."""
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for row in _document()["rows"]:
        said, own = _published(row["published"]), _simulated(row)
        unit = f" {row['unit']}".rstrip()
        difference = (
            f"{own - said:+.2g} points" if unit == " %" else f"{100 * (own / said - 1):+.0f} %"
        )
        cells = (
            *(row["paper"], row["figure"], row["number"]),
            f"{row.get('words', '')} {_number(said)}{unit}".strip(),
            f"{_number(own)}{unit}",
            *(difference.replace("-0 %", "0 %").replace("+0 %", "0 %"), row.get("why", "")),
        )
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)


PARTS = {"papers": papers}

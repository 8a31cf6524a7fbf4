"""What the project's own experiments call things is public, whatever the host has."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, yaml_file_names
from chaosity.store.profile_anonymisation import anonymise_profiles
from chaosity.store.profile_database import PROFILE_TABLES
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_outcome
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, rows_to_table
from chaosity.topology.topology_parts import CoreKind, OpenclDevice
from machines import shipped_topology

# A device's own words, of which some makers give each specimen its own.
GPU = OpenclDevice(
    "opencl0",
    "Acme OpenCL of db-prod-17",
    "Acme X1 S/N 0815",
    "gpu",
    vendor="GenuineIntel",
    pci="0000:01:00.0",
    uuid="4c4c4544",
    node=0,
)
SECRETS = ("acme", "0815", "4c4c4544", "db-prod-17", "0000:01", "drive-0000", "01-00-0")
COMPARED = (
    *("experiment", "load", "benchmark", "category", "kernel", "initiator", "initiator_kind"),
    *("initiator_nodes", "target", "target_kind", "target_nodes", "relation", "metric", "label"),
    *("factors", "levels"),
)


@pytest.fixture(scope="module")
def server():
    """The server of document 000, if some of its cores were slower and it had a GPU."""
    found = shipped_topology("epyc-7413-2s-nps4-30drives")
    cores = [core.cpus for core in found.cores]
    slow, fast = (tuple(sorted(sum(part, ()))) for part in (cores[:20], cores[20:]))
    kinds = (CoreKind(0, slow, frequency_max_hertz=2), CoreKind(1, fast, frequency_max_hertz=3))
    return replace(found, core_kinds=kinds, opencl_devices=(GPU,))


def published(topology, experiment):
    """The rows of an experiment's points, each value 1, and as others would see them."""
    serials = [drive.serial for drive in topology.drives if drive.serial]
    host = PlannedHost("db-prod-17", "nps4", topology, {"chaosity_destructive_drives": serials})
    rows = []
    weights = dict.fromkeys((node.os_index for node in topology.memory_nodes), 1.0)
    few = {"experiments": [experiment], "sample": {experiment: 120}}
    for point in plan_host(host, {**read_config(), **few}, None, lambda *_: weights).points:
        read = {
            load["name"]: {
                name: (_value(load, source), None) for name, source in load["metrics"].items()
            }
            for load in point["loads"]
        }
        rows += tidy_rows_of_outcome(point, 1, ReplicateOutcome("valid", order=0, readings=read))
    table = pd.DataFrame(rows, columns=list(COLUMN_TYPES)).astype(COLUMN_TYPES)
    profile = {"id": "p", "host": host.name, "configuration": "nps4"}
    parts = {
        "profiles": rows_to_table([profile], PROFILE_TABLES["profiles"]),
        "components": rows_to_table([], PROFILE_TABLES["components"]),
        "measurements": table.assign(profile="p").drop(columns="reference"),
    }
    return table, anonymise_profiles(parts, b"salt")["measurements"]


def _value(load, source):
    return dict.fromkeys(load["target"]["by_node"], 1.0) if "by_node" in source else 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("experiment", yaml_file_names(EXPERIMENTS_FOLDER))
def test_all_names_of_shipped_experiments_survive_except_drives(server, experiment):
    own, public = published(server, experiment)
    assert len(own) == len(public)
    left = own[list(COMPARED)].astype(object).where(own[list(COMPARED)].notna(), None)
    right = public[list(COMPARED)].astype(object).where(public[list(COMPARED)].notna(), None)
    drives = (own["target_kind"] == "drive").to_numpy()
    for column in COMPARED:
        kept = ~drives if column == "target" else slice(None)
        pairs = set(zip(left[column][kept], right[column][kept], strict=True))
        changed = {(one, other) for one, other in pairs if one != other}
        assert not changed, column
    assert set(right["target"][drives]) <= {f"drive{number}" for number in range(1, 31)}
    text = public.to_csv(index=False).lower()
    assert [secret for secret in SECRETS if secret in text] == []


def test_kinds_of_cores_without_a_rank_keep_their_numbers(server):
    kinds = tuple(CoreKind(i, server.pus[i::3], efficiency=i) for i in range(3))
    _, public = published(replace(server, core_kinds=kinds), "unlike_cores")
    assert {"kind0", "kind1", "kind2"} <= set(public["initiator"])
    assert set(public["initiator_kind"]) >= {"pu", "core_kind"}


def test_names_that_only_resemble_places_are_replaced(server):
    own, _ = published(server, "unlike_cores")
    profile = rows_to_table(
        [{"id": "p", "host": "h", "configuration": "nps4"}], PROFILE_TABLES["profiles"]
    )
    parts = {"profiles": profile, "components": rows_to_table([], PROFILE_TABLES["components"])}
    for name in (
        *("db_cores", "machine_without_db-prod-17", "kind", "opencl0x", "uniform_all_of_acme"),
        "node0_acme_without_pu0",
    ):
        factors = json.dumps({"policy": name})
        rows = own.head(4).assign(profile="p", initiator=name, target=name, factors=factors)
        parts["measurements"] = rows.drop(columns="reference")
        public = anonymise_profiles(parts, b"salt")["measurements"]
        assert set(public["initiator"]) == {"initiator_1"}
        assert set(public["target"]) == {"target_1"}
        assert set(public["factors"]) == {json.dumps({"policy": "other"})}

"""Profiles of two hosts: their results, their database, and a bundle of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from profile_results import machine, write_results

from chaosity.store.profile_bundles import publish_bundle
from chaosity.store.profile_database import update_profiles_from_results


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Results of two hosts, their database, and a bundle of one; not to be changed."""
    folder = tmp_path_factory.mktemp("profiles")
    for found in (machine(), machine(configuration="nps1", seed=6), machine(host="epyc2", seed=7)):
        write_results(folder / "results", found)
    update_profiles_from_results([folder / "results"], folder / "profiles.duckdb")
    publish_bundle(folder / "profiles.duckdb", folder / "good.zip", host="epyc2")
    return folder


@pytest.fixture
def results(made):
    return made / "results"


@pytest.fixture
def database(made, tmp_path):
    return Path(shutil.copy(made / "profiles.duckdb", tmp_path))


@pytest.fixture
def bundle(made):
    return made / "good.zip"

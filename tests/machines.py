"""Results of simulated machines, made once by the public commands and kept for later runs.

`simulated` is the one way to a folder ``results`` in which hosts have been measured: plan, records,
tidy table, findings and predictions.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from chaosity.checked_yaml_files import ROOT
from chaosity.cli import chaosity

SMALL_MACHINES = ROOT / "tests/data/machines"
SHIPPED_MACHINES = ROOT / "machines"
# Below build/, where both workers of pytest-xdist and later runs find them.
KEPT = ROOT / "build/simulated_machines"
# If this variable of the environment is set, machines that exist are not made anew when the product
# changes: a mutant is then shown the results of the product without the mutation.
KEEP = "CHAOSITY_KEEP_SIMULATED_MACHINES"
# Rooms that no command of `make_results` uses; docs/design.md and test_rooms.py forbid it.
_WITHOUT_EFFECT = {"compare", "export", "figures", "health", "report", "slurm"}
# Stands for the folder of an inventory, which depends on the content of its files.
_HERE = "FOLDER_OF_INVENTORY"

Fault = Mapping[str, Any]


def simulated(
    machine: str | Mapping[str, Any],
    experiments: Sequence[str],
    faults: Iterable[Fault] = (),
    seed: int = 1,
    *,
    hosts: Sequence[str] = ("server",),
    topology: str | None = None,
    **config: Any,
) -> Path:
    """Return the folder ``results`` of equal simulated hosts; tests copy it before they change it.

    Args:
        machine: name of a file in tests/data/machines or machines, or a description as such a file.
        experiments: names of the experiments.
        faults: faults of the hosts; one with the key ``host`` is a fault of that host only.
        seed: of the noise and of the random order.
        hosts: their names. Equal hosts differ by their noise.
        topology: name of a topology beside the machines; default: that of the machine.
        config: other keys of the config, such as ``replicates`` (default: 3) or ``levels``.
    """
    own = _description(machine) if isinstance(machine, str) else machine
    own = {**own, "seed": seed, "faults": [*own.get("faults", ()), *map(dict, faults)]}
    name = own["simulated_machine"]
    xml = _file(SMALL_MACHINES, SHIPPED_MACHINES / "topologies", name=f"{topology or name}.xml")
    files = {
        "topology.xml": xml,
        f"{name}.yaml": yaml.safe_dump(own),
        "hosts.yml": yaml.safe_dump(_inventory(hosts, name)),
        "config.yaml": yaml.safe_dump(
            {"experiments": list(experiments), "replicates": 3, "seed": seed, **config}
        ),
    }
    return _made_once(files)


def configuration_folder(results: Path, host: str = "server") -> Path:
    """Return ``results/HOST/CONFIGURATION`` of a host with one configuration."""
    [plan] = results.glob(f"{host}/*/plan.json")
    return plan.parent


def run_chaosity(*words: str | Path) -> str:
    """Run a command of ``chaosity`` in this process and return its standard output."""
    done = CliRunner().invoke(chaosity, [str(word) for word in words])
    assert done.exit_code == 0, f"{words}: {done.output}{done.exception!r}"
    return done.stdout


def _description(name: str) -> Mapping[str, Any]:
    """Return the description of a machine that has a file."""
    text = _file(SMALL_MACHINES, SHIPPED_MACHINES, name=f"{name}.yaml")
    description: Mapping[str, Any] = yaml.safe_load(text)
    return description


def _file(*folders: Path, name: str) -> str:
    """Return the text of the file of this name in the first folder that has it."""
    return next(path for folder in folders if (path := folder / name).exists()).read_text()


def _inventory(hosts: Sequence[str], machine: str) -> dict[str, Any]:
    """Return an inventory of equal simulated hosts, whose files are beside it."""
    variables = {
        "ansible_connection": "local",
        "chaosity_topology": f"{_HERE}/topology.xml",
        "chaosity_simulated": f"{_HERE}/{machine}.yaml",
    }
    return {"all": {"hosts": dict.fromkeys(hosts, variables)}}


def _made_once(files: Mapping[str, str]) -> Path:
    """Return the results of a config, inventory, machine and topology; make them if need be."""
    arguments = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / arguments
    made_by = folder / "product.sha256"
    with (KEPT / f"{arguments}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_by.exists() or (
            KEEP not in os.environ and made_by.read_text() != product_digest()
        ):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, text in files.items():
                (folder / name).write_text(text.replace(_HERE, str(folder)))
            make_results(folder)
            made_by.write_text(product_digest())
    return folder / "results"


def make_results(folder: Path) -> None:
    """Make ``results`` from the config and the inventory in a folder, as the workflow does."""
    config, inventory = folder / "config.yaml", folder / "hosts.yml"
    results = folder / "results"
    run_chaosity("simulate", "--config", config, "--inventory", inventory, "--results", results)
    for plan in sorted(folder.glob("results/*/*/plan.json")):
        make_tables(plan.parent)


def make_tables(folder: Path) -> None:
    """Make tables, findings and predictions from the records of a configuration of a host."""
    table, history = folder / "measurements.parquet", folder / "history.parquet"
    run_chaosity("tidy", folder / "plan.json", "--output", table, "--history", history)
    (folder / "findings.json").write_text(run_chaosity("anomalies", table, "--json"))
    if json.loads((folder / "plan.json").read_text()).get("left_out"):
        run_chaosity("predict", folder)


@cache
def product_digest() -> str:
    """Return a digest of the product's files that can change the results of a machine."""
    digest = hashlib.sha256()
    for folder in (ROOT / "workflow", ROOT / "templates"):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.suffix in (".py", ".yaml", ".j2") and not _WITHOUT_EFFECT & {*name.parts}:
                digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()

"""Runs the commands of the documents, each as tests/documented_commands.yaml says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from compiler_cache import path_with_cache
from documented_commands import (
    DRY_RUN,
    HERE,
    ROOT,
    SIMULATED,
    DocumentedCommand,
    documents,
    listed_commands,
    prepared_files,
)

NOT_COPIED = (
    ".git",
    ".venv",
    ".snakemake",
    ".*_cache",
    "__pycache__",
    "shared",
    "results",
    "build",
)
# The benchmark, the experiment and the inventory that documents show as examples.
EXAMPLE = re.compile(r"^```yaml\n((benchmark|experiment|all):.*?)^```", re.M | re.DOTALL)
EXAMPLE_FILES = {
    "benchmark": "templates/benchmarks/my_copy.yaml",
    "experiment": "workflow/experiments/far_reads.yaml",
    "all": "inventories/remote/hosts.yml",
}


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a folder, with the programs of its environment."""
    path = path_with_cache(ROOT / "build/compilers", os.environ["PATH"])
    # Whoever only activated the environment has no kernels in the search path.
    path = os.pathsep.join(each for each in path.split(os.pathsep) if "build/kernels" not in each)
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}/.venv/bin{os.pathsep}{path}", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


def make_environment(folder: Path) -> None:
    """Make .venv with this environment's packages and programs, but with the folder's modules."""
    environment = folder / ".venv"
    command = [sys.executable, "-m", "venv", "--without-pip", environment]
    subprocess.run(command, check=True, capture_output=True)
    [packages] = environment.glob("lib/python3*/site-packages")
    shared = (path for path in sys.path if path.endswith("site-packages"))
    (packages / "shared.pth").write_text("\n".join([f"{folder / 'workflow'}", *shared]))
    for program in Path(sys.executable).parent.iterdir():
        own = environment / "bin" / program.name
        if not own.exists() and program.is_file() and program.read_bytes()[:2] == b"#!":
            _, text = program.read_text().split("\n", 1)
            own.write_text(f"#!{environment}/bin/python\n{text}")
            own.chmod(0o755)
    for lock in folder.glob("requirements*.lock"):
        (environment / lock.with_suffix(".installed").name).touch()


def copy_repository(folder: Path) -> Path:
    """Copy the repository, and add an environment and the files that the commands need."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    make_environment(folder)
    for name, text in prepared_files().items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    shutil.copy(ROOT / "machines/topologies/epyc_7413_nps4.xml", folder / "machine.xml")
    shutil.copy(ROOT / "tests/data/topologies/m1-pro-by-hand.xml", folder / "mac.xml")
    for path in documents():
        for text, kind in EXAMPLE.findall(path.read_text()):
            example = folder / EXAMPLE_FILES[kind]
            example.parent.mkdir(exist_ok=True)
            example.write_text(text)
    return folder


def write_inventory(folder: Path, **hosts: str) -> None:
    """Write an inventory of simulated hosts: name and topology of each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    document = {
        name: {
            "ansible_connection": "local",
            "chaosity_topology": f"machines/topologies/{topology}.xml",
            "chaosity_simulated": f"machines/{topology.partition('_nps')[0]}.yaml",
        }
        for name, topology in hosts.items()
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": document}}))


def pretend_measured(results: Path) -> None:
    """Remove from records that they are simulated, for commands that refuse simulated values."""
    for digests in results.glob("*/*/*/*/attempts/SHA256SUMS"):
        digests.unlink()  # else the change is noticed
    for path in results.glob("*/*/*/*/rep*.json"):
        record = json.loads(path.read_text())
        del record["origin"]
        path.write_text(json.dumps(record))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository whose only host is this machine."""
    return copy_repository(tmp_path_factory.mktemp("here") / "chaosity")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository whose hosts are simulated."""
    folder = copy_repository(tmp_path_factory.mktemp("simulated") / "chaosity")
    inventories = folder / "inventories"
    shutil.copytree(inventories / "localhost", inventories / "this_machine")
    write_inventory(inventories / "localhost", node01="xeon_8358")
    server = "epyc_7413_nps1"
    write_inventory(inventories / "mine", node01="epyc_7413_nps4", node02=server, node03=server)
    write_inventory(inventories / "nps1", node01=server)
    write_inventory(inventories / "lab", small="xeon_8358", server="epyc_7413_nps4")
    return folder


@pytest.fixture(scope="module")
def with_results(simulated: Path) -> Path:
    """The same copy with results of its hosts, and with results that pass for measured ones."""
    simulate = "chaosity simulate --config matrices.yaml --inventory inventories"
    tidy = 'chaosity tidy "$plan" --output "${plan%/*}/measurements.parquet"'
    done = shell(simulated, f"{simulate}/nps1 && {simulate}/mine && cp -r results measured")
    assert done.returncode == 0, done.stdout
    pretend_measured(simulated / "measured")
    tidied = f"for plan in {{results,measured}}/*/*/plan.json; do {tidy} || exit; done"
    done = shell(simulated, f"{tidied}; chaosity profile collect measured")
    assert done.returncode == 0, done.stdout
    return simulated


def entries(how: str) -> list[object]:
    """Return the commands that are tested like this, as parameters of a test."""
    # Commands that measure this machine must run alone.
    slow = [pytest.mark.thorough, *([pytest.mark.alone] if how == HERE else [])]
    return [
        pytest.param(each, id=each.command, marks=[] if each.fast else slow)
        for each in listed_commands()
        if each.how == how
    ]


def assert_runs(command: DocumentedCommand, folder: Path) -> None:
    """Run a command in a folder, and check its status, its output and the file that it writes."""
    for path in folder.glob(command.writes) if command.writes else ():
        path.unlink() if path.is_file() else shutil.rmtree(path)
    done = shell(folder, command.shell_script)
    assert done.returncode == 0, done.stdout
    assert re.search(command.prints, done.stdout, re.MULTILINE), done.stdout
    assert not command.writes or list(folder.glob(command.writes)), done.stdout


@pytest.mark.parametrize("command", entries(HERE))
def test_it_runs_on_this_machine(here: Path, command: DocumentedCommand) -> None:
    assert_runs(command, here)


@pytest.mark.parametrize("command", entries(SIMULATED))
def test_it_runs_on_simulated_hosts(with_results: Path, command: DocumentedCommand) -> None:
    assert_runs(command, with_results)


@pytest.mark.parametrize("command", entries(DRY_RUN))
def test_its_dry_run_succeeds(simulated: Path, command: DocumentedCommand) -> None:
    assert_runs(command, simulated)

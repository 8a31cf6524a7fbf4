"""The commands of the documents run.

The blocks of a page run in order, in a copy of the repository with simulated hosts, as for a reader
who follows the page; `make` and `snakemake` run dry. A comment before a block changes this:
`<!-- file: PATH -->` makes the block a file, and `<!-- not run: REASON -->` leaves it out. Of all
commands, also of those in sentences, programs, options and names must exist.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from chaosity.cli import chaosity
from chaosity.cli.weights import placement_argument_parser
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import ROOT, load_experiment
from chaosity.errors import UserError
from inventories import write_inventory
from machines import pretend_measured, run_chaosity

DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")))
    if path.name != "CHANGELOG.md"  # it is about the past
}
BLOCK = re.compile(r"(?:^<!-- (file|not run): (.+?) -->\n)?^```(\w*)\n(.*?)^```", re.M | re.DOTALL)
COPIED = ("cluster", "config", "inventories", "playbooks", "profiles", "templates", "workflow")
# The simulated hosts of the copy; node01 was measured in a second configuration, too.
INVENTORIES = {
    "localhost": {"localhost": "desktop"},
    "mine": {
        "node01": "epyc_7413_nps4",
        **dict.fromkeys(("node02", "node03", "node07"), "epyc_7413_nps1"),
    },
    "other": {"node01": "epyc_7413_nps1"},
}


class Block(NamedTuple):
    """A fenced block: what the comment before it says, its language and its text."""

    mark: str
    remark: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its commands, without comments; none if it is no block of a shell."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language in ("", "sh") else []
        return [line for line in (re.sub(r"(^|\s+)#.*", "", line) for line in lines) if line]

    @property
    def run(self) -> list[str]:
        """The commands that run; `check_make` looks at those of make."""
        lines = [line for line in self.lines if not self.mark and not line.startswith("make ")]
        dry = (re.sub(r"^(\S*snakemake)(?!.*--dry-run)", r"\1 --dry-run", line) for line in lines)
        return list(dict.fromkeys(dry))


def blocks(document: str) -> list[Block]:
    return [Block(*match) for match in BLOCK.findall(DOCUMENTS[document])]


def commands(document: str) -> Iterator[list[str]]:
    """Yield the words of each command of the project in blocks and sentences."""
    lines = [line for block in blocks(document) for line in block.lines]
    quoted = re.findall(r"`([^`]+)`", BLOCK.sub("", DOCUMENTS[document]))
    for text in (*lines, *(text for text in quoted if " " in text)):
        if text.removeprefix(".venv/bin/").partition(" ")[0] in CHECKS:
            # Alternatives and optional parts of a synopsis count, other programs of a line do not.
            line = re.sub(r" \[(--[^]]*)\]", r" \1", text)
            words = shlex.split(re.split(r" [|<>&]+ ", line.removeprefix(".venv/bin/"))[0])
            if len(words) > 1:
                yield words


def options(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match("--?[a-z]", word)]


def check_help(words: list[str], text: str) -> None:
    """Check that a help text has every option."""
    for option in options(words):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), (words, option)


def check_chaosity(words: list[str]) -> None:
    command: click.Command = chaosity
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest.pop(0))
        assert found, words
        command = found
    check_help(rest, command.get_help(click.Context(command, help_option_names=["-h", "--help"])))


def check_place(words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words
    check_help(own, placement_argument_parser().format_help())


@functools.cache
def snakemake_help() -> str:
    from snakemake.cli import get_argument_parser

    text: str = get_argument_parser().format_help()
    return text


def check_snakemake(words: list[str]) -> None:
    """Check options, the profile, and the config that the profile, files and `--config` make."""
    check_help(words, snakemake_help())
    config: dict[str, Any] = {}
    for option, value in itertools.pairwise(words):
        if option == "--profile":
            profile = yaml.safe_load((ROOT / value / "config.yaml").read_text())
            config |= yaml.safe_load((ROOT / profile["configfile"][0]).read_text())
        if option == "--configfile" and "/" in value:  # a file of this project
            config |= yaml.safe_load((ROOT / value).read_text())
    if "--config" in words:
        pairs = [word.split("=", 1) for word in words[words.index("--config") + 1 :] if "=" in word]
        config |= {key: yaml.safe_load(value) for key, value in pairs}
    chosen = config.get("benchmarks", {})
    config["benchmarks"] = {key: name for key, name in chosen.items() if "my_" not in name}
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "config.yaml"
        given.write_text(yaml.safe_dump(config))
        for name in read_config(given)["experiments"]:
            load_experiment(name)


def check_playbook(words: list[str]) -> None:
    """Check that the playbook exists, and that a role or playbook knows each variable."""
    pairs = itertools.pairwise(words)
    [playbook] = [word for before, word in pairs if word.endswith(".yml") and before != "-i"]
    files = [ROOT / playbook, *ROOT.glob("roles/**/*.yml"), *ROOT.glob("tests/*/roles/**/*.yml")]
    known = "\n".join(path.read_text() for path in files)
    for option, value in itertools.pairwise(words):
        assert option != "-e" or value.partition("=")[0] in known, words


def check_make(words: list[str]) -> None:
    done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if bench := re.search(r"python (\S+/run\.py) (\w+)", done.stdout):
        modules = (ROOT / bench[1]).parent.glob("*.py")
        part = rf'^(PARTS|ONLY_IF_NAMED) = .*"{bench[2]}":'
        assert any(re.search(part, module.read_text(), re.MULTILINE) for module in modules), words


CHECKS = {
    "chaosity": lambda words: (check_place if words[1] == "place" else check_chaosity)(words),
    "chaosity-place": check_place,
    "snakemake": check_snakemake,
    "ansible-playbook": check_playbook,
    "make": check_make,
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_programs_options_and_names_of_commands_exist(document: str) -> None:
    for words in commands(document):
        CHECKS[words[0]](words)


@pytest.mark.parametrize(
    "line",
    [
        *("chaosity plan --lst", "chaosity plans --list", "chaosity place --node 0 -- ./program"),
        *(
            "snakemake --config buget=30m",
            "snakemake --configfile config/far.yaml",
            "snakemake --config experiments=[far]",
            "make demos",
        ),
        *("snakemake --dry", "ansible-playbook playbooks/monitor.yml -e monitors=x"),
        'make bench BENCH_ARGUMENTS="kernel --pairs 3"',
    ],
)
def test_a_mistake_is_noticed(line: str) -> None:
    words = shlex.split(line)
    with pytest.raises((AssertionError, UserError, OSError)):
        CHECKS[words[0]](words)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's titles, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_links_lead_to_files_and_titles(document: str) -> None:
    page = ROOT / document
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(), flags=re.M | re.S)
    dead = []
    for link in re.findall(r"\]\(<?([^)>\s]+)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match("[a-z]+:", link) or (not anchor and target.exists()):
            continue
        if (
            target.suffix != ".md"
            or not target.exists()
            or anchor not in anchors(target.read_text())
        ):
            dead.append(link)
    assert not dead


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_page_names_the_files_that_its_reader_writes(document: str) -> None:
    """The comment that makes a block a file is not shown to readers."""
    shown = BLOCK.sub("", DOCUMENTS[document])
    files = [block.remark for block in blocks(document) if block.mark == "file"]
    assert [path for path in files if f"`{path}`" not in shown] == []


def test_commands_are_found() -> None:
    found = [" ".join(words) for document in DOCUMENTS for words in commands(document)]
    assert len(found) > 120
    assert "make demo" in found
    assert sum(len(block.lines) for name in DOCUMENTS for block in blocks(name)) > 60


def run(folder: Path, line: str, *, in_copy: bool) -> str:
    """Run a line in a folder and return what it prints.

    Where a page adds files to the copy of the repository, its commands run from there.
    """
    if line.startswith("chaosity ") and not in_copy and not re.search(r"[|*>]", line):
        with contextlib.chdir(folder):
            return run_chaosity(*shlex.split(line)[1:])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}"}
        | {"PYTHONPATH": f"{folder}/workflow", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def make_copy(folder: Path) -> None:
    """Copy the repository, and give it simulated hosts and their results as if measured."""
    for name in COPIED:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in (*ROOT.glob("*.yml"), ROOT / "Snakefile", ROOT / "ansible.cfg"):
        shutil.copy(path, folder)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    for inventory, hosts in INVENTORIES.items():
        variables = {
            name: {
                "ansible_connection": "local",
                "chaosity_topology": f"templates/machines/topologies/{machine}.xml",
                "chaosity_simulated": f"templates/machines/{machine.partition('_nps')[0]}.yaml",
            }
            for name, machine in hosts.items()
        }
        path = folder / "inventories" / inventory / "hosts.yml"
        path.parent.mkdir(exist_ok=True)
        write_inventory(path, variables)
    config = {"experiments": ["memory_bandwidth", "latency_matrix"], "replicates": 2}
    (folder / "maps.yaml").write_text(yaml.safe_dump(config))
    simulate = "chaosity simulate --config maps.yaml --inventory inventories/"
    for inventory in ("other", "mine"):
        run(folder, f"{simulate}{inventory}", in_copy=False)
    pretend_measured(folder / "results")
    for plan in folder.glob("results/*/*/plan.json"):
        line = f"chaosity tidy {plan} --output {plan.parent}/measurements.parquet"
        run(folder, line, in_copy=False)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` fills, once in a session of pytest.

    Stolen tests need the prepared data of a module in two workers. The first worker makes it while
    the other waits. Tests must not change the folder.

    Raises:
        AssertionError: another worker could not make it.
    """
    base = factory.getbasetemp()
    # Each worker of pytest-xdist has a folder below that of the session.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, complete = common / name, common / f"{name}.complete"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            assert not folder.exists(), f"another worker could not make {folder}: see its error"
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "document",
    [name for name in DOCUMENTS if any(block.run for block in blocks(name))],
)
def test_the_blocks_run_in_order(
    document: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = made_once(tmp_path_factory, "documents", make_copy)
    folder = shutil.copytree(copy, tmp_path / "chaosity", symlinks=True)
    in_copy = False
    for block in blocks(document):
        if block.mark == "file":
            (folder / block.remark).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.remark).write_text(block.text)
            in_copy |= block.remark.startswith(("templates/", "workflow/"))
        for line in block.run:
            said = run(folder, line, in_copy=in_copy)
            # A command that writes a file prints nothing but messages.
            assert said or "--output" in line or not line.startswith("chaosity"), line


@pytest.mark.thorough
def test_the_numbers_and_findings_that_readers_see_first_are_true(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = made_once(tmp_path_factory, "documents", make_copy)
    folder = shutil.copytree(copy, tmp_path / "chaosity", symlinks=True)
    tutorial = "docs/tutorials/find-the-fault.md"
    for block in blocks(tutorial):
        if block.mark == "file":
            (folder / block.remark).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.remark).write_text(block.text)
    output = ""
    for inventory, command in (
        ("demo", "show"),
        ("hidden_fault", "show"),
        ("hidden_fault", "anomalies"),
        ("planted", "anomalies"),
    ):
        simulate = "chaosity simulate --config hidden.yaml --results results/shown"
        run(folder, f"{simulate} --inventory inventories/{inventory}", in_copy=True)
        [host] = yaml.safe_load((folder / f"inventories/{inventory}/hosts.yml").read_text())["all"][
            "hosts"
        ]
        results = f"results/shown/{host}/nps4"
        table = f"{results}/measurements.parquet"
        run(folder, f"chaosity tidy {results}/plan.json --output {table}", in_copy=True)
        output += run(folder, f"chaosity {command} {results}", in_copy=True)
    [each_node] = [line for block in blocks(tutorial) for line in block.lines if "for n in" in line]
    output += run(folder, each_node.replace("results/hidden", "results/shown"), in_copy=True)
    quoted = [
        block.text
        for document in ("README.md", tutorial)
        for block in blocks(document)
        if block.text.lstrip().startswith(("Memory bandwidth", "from node", "bandwidth_bytes"))
    ]
    assert len(quoted) == 3
    assert set("".join(quoted).splitlines()) <= set(output.splitlines())
    findings = re.findall(r"^finding: (.*)$", DOCUMENTS[tutorial], re.M)
    assert len(findings) == 2
    assert all(finding in output for finding in findings)
    drawn = re.findall(r">([0-9.]+) GB/s<", (ROOT / "docs/machine.svg").read_text())
    for node in range(8):  # the drawing has the memory bandwidth of each node on its own node
        [row] = [line.split() for line in quoted[0].splitlines() if line.startswith(f"{node} ")]
        assert row[1 + node] in drawn

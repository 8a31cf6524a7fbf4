"""Provisioning for real: this machine's own tools, compiler and users."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from compiler_cache import ROOT, path_with_cache
from playbooks import NOBODY, WITHOUT_ROOT, Outcome

# `make test` itself provisions this machine; these tests compile everything several times.
pytestmark = pytest.mark.thorough

KERNELS = ("--tags", "kernels")
TOOLS = {"fio", "numactl", "lstopo-no-graphics", "sudo"}
# Stands in for McCalpin's file, which is not ours to ship; it tells what it was compiled with.
STREAM = (
    '#include <stdio.h>\nint main(void) { printf("%ld %d\\n", (long)STREAM_ARRAY_SIZE, NTIMES); }\n'
)


def play(root: Path, *arguments: str | Path, **given: Any) -> Outcome:
    """Run provision.yml with compilers that keep objects: nearly every play builds all programs."""
    path = path_with_cache(ROOT / "build/compilers", os.environ["PATH"])
    environment = {"PATH": path, **given.pop("environment", {})}
    return playbooks.play(
        root, *arguments, playbook="provision.yml", environment=environment, **given
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("stream") / "stream.c"
    source.write_text(STREAM)
    return source


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, stream: Path) -> dict[str, Any]:
    """Variables that put everything into a folder of its own, as on a host of a lab."""
    folder = tmp_path_factory.mktemp("host")
    return {
        "kernels_directory": str(folder / "kernels"),
        "kernels_copy_sources": True,
        "kernels_stream_source": str(stream),
        "kernels_stream_sha256": sha256(stream),
        "runner_directory": str(folder / "runner"),
    }


@pytest.fixture(scope="module")
def tried(root: Path, places: dict[str, Any]) -> Outcome:
    """A trial on a host that has nothing of the project's yet."""
    outcome = play(root, "--check", extra=places)
    assert not Path(places["kernels_directory"]).exists()
    return outcome


@pytest.fixture(scope="module")
def provisioned(root: Path, places: dict[str, Any], tried: Outcome) -> Outcome:
    return play(root, extra=places)


def test_a_trial_on_a_fresh_host_tells_and_does_nothing(tried: Outcome) -> None:
    assert tried.status == 0, tried.said
    assert tried.count("changed") > 0


def test_what_was_built_runs(provisioned: Outcome, places: dict[str, Any]) -> None:
    assert provisioned.status == 0, provisioned.said
    for program in (
        [f"{places['kernels_directory']}/chaosity-bandwidth", "--help"],
        [sys.executable, f"{places['runner_directory']}/chaosity-run.pyz", "--help"],
    ):
        assert subprocess.run(program, capture_output=True, check=False).returncode == 0, program


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write into /run")
def test_root_makes_locks_that_only_root_can_replace(provisioned: Outcome) -> None:
    for path in (Path("/run/chaosity"), *Path("/run/chaosity").glob("*.lock")):
        mode = 0o755 if path.is_dir() else 0o644
        assert (path.stat().st_uid, path.stat().st_mode & 0o7777) == (0, mode), provisioned.said
    names = {path.name for path in Path("/run/chaosity").iterdir()}
    assert names >= {"measuring.lock", "settings.lock"}
    if Path("/etc/tmpfiles.d").is_dir():
        at_boot = Path("/etc/tmpfiles.d/chaosity.conf").read_text().splitlines()
        assert at_boot[1:] == [f"f /run/chaosity/{name} 0644 root root" for name in sorted(names)]


def test_stream_is_built_as_in_the_paper(provisioned: Outcome, places: dict[str, Any]) -> None:
    program = Path(places["kernels_directory"]) / "stream"
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert said == "100000000 100\n", provisioned.said


def test_a_second_run_changes_nothing(
    root: Path, places: dict[str, Any], provisioned: Outcome
) -> None:
    again = play(root, extra=places)
    assert (again.status, again.count("changed")) == (0, 0), again.said


def test_a_trial_on_a_provisioned_host_finds_nothing_to_do(
    root: Path, places: dict[str, Any], provisioned: Outcome
) -> None:
    trial = play(root, "--check", extra=places)
    assert (trial.status, trial.count("changed")) == (0, 0), trial.said


def test_hosts_with_one_home_build_at_once(
    root: Path, places: dict[str, Any], tmp_path: Path
) -> None:
    inventory = tmp_path / "hosts.yml"
    hosts = "a: {ansible_connection: local}, b: {ansible_connection: local}"
    python = "{ansible_python_interpreter: '{{ ansible_playbook_python }}'}"
    inventory.write_text(f"all: {{vars: {python}, hosts: {{{hosts}}}}}\n")
    kernels = tmp_path / "kernels"
    extra = {**places, "kernels_directory": str(kernels), "kernels_stream_source": ""}
    outcome = play(root, *KERNELS, "-i", inventory, extra=extra)
    assert outcome.status == 0, outcome.said
    # One host waited for the other, and found everything built.
    build = re.search(
        r"TASK \[kernels : Compile the kernels.*?(?=\nTASK|\nPLAY)", outcome.said, re.S
    )
    assert build is not None
    assert build.group().count("changed: [") == 1, outcome.said
    own = kernels / f"on-{os.uname().nodename}"
    assert (own / "chaosity-latency").resolve() == (kernels / "chaosity-latency").resolve()
    subprocess.run([own / "chaosity-latency", "--help"], check=True, capture_output=True)


def test_another_compiler_gets_a_folder_of_its_own(
    root: Path, places: dict[str, Any], provisioned: Outcome, tmp_path: Path
) -> None:
    link = Path(places["kernels_directory"]) / "chaosity-bandwidth"
    before = link.readlink()
    compiler = tmp_path / "other-gcc"
    compiler.symlink_to(shutil.which("gcc"))
    outcome = play(root, *KERNELS, extra={**places, "kernels_compiler": str(compiler)})
    assert outcome.status == 0, outcome.said
    assert link.readlink() != before


def test_a_program_whose_library_is_not_there_is_left_out_and_said(
    root: Path, places: dict[str, Any], tmp_path: Path
) -> None:
    compiler, kernels = tmp_path / "gcc-without-liburing", tmp_path / "kernels"
    refusing = 'for word; do [ "$word" = liburing.h ] && exit 1; done'
    compiler.write_text(f'#!/bin/sh\n{refusing}\nexec {shutil.which("gcc")} "$@"\n')
    compiler.chmod(0o755)
    kernels.mkdir()
    (kernels / "chaosity-sum").symlink_to("built-earlier/chaosity-sum")
    extra = {
        **places,
        "kernels_compiler": str(compiler),
        "kernels_directory": str(kernels),
        "kernels_copy_sources": False,
        "kernels_stream_source": "",
    }
    outcome = play(root, *KERNELS, extra=extra)
    assert outcome.status == 0, outcome.said
    assert outcome.says("chaosity-sum, since liburing is missing"), outcome.said
    assert not outcome.says("chaosity-tasks, since"), outcome.said
    assert {path.name for path in kernels.glob("chaosity-*")} >= {
        "chaosity-bandwidth",
        "chaosity-tasks",
    }
    assert not (kernels / "chaosity-sum").is_symlink()


def refused(root: Path, folder: Path, hosts: dict[str, Any], *words: str) -> Outcome:
    """Run provision.yml for hosts that are this machine, and which it must refuse."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    document = {"all": {"hosts": {name: local | given for name, given in hosts.items()}}}
    (folder / "hosts.json").write_text(json.dumps(document))
    outcome = play(root, *words, "-i", folder / "hosts.json")
    assert outcome.count("failed") == len(hosts), outcome.said
    for name in hosts:
        assert f"fatal: [{name}]: FAILED!" in outcome.said
    return outcome


# Host by host: what is wrong, and words of the sentence.
BAD_KERNELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sum": ({"kernels_stream_sha256": "0" * 64}, ["It was not built", "0" * 64]),
    "no-sum": ({"kernels_stream_sha256": ""}, ["kernels_stream_source without a valid"]),
    "file": (
        {"kernels_stream_source": "/no/stream.c"},
        ["/no/stream.c has the SHA-256 (no such file)"],
    ),
    "source": (
        {"kernels_stream": True, "kernels_stream_source": ""},
        ["an empty kernels_stream_source"],
    ),
    "once": ({"kernels_stream_iterations": 1}, ["kernels_stream_iterations", "must be 2 or more"]),
    "empty": ({"kernels_stream_array_size": 0}, ["must be positive"]),
    "number": ({"kernels_stream_array_size": "many"}, ["kernels_stream_array_size", "int"]),
    "relative": ({"kernels_directory": "kernels"}, ["is kernels; give a full path"]),
}


def test_a_bad_kernels_variable_is_refused(
    root: Path, places: dict[str, Any], tmp_path: Path
) -> None:
    hosts = {
        name: {
            **places,
            **{"kernels_directory": str(tmp_path / name), "kernels_copy_sources": False},
            **changes,
        }
        for name, (changes, _) in BAD_KERNELS.items()
    }
    outcome = refused(root, tmp_path, hosts, *KERNELS)
    for name, (_, words) in BAD_KERNELS.items():
        assert outcome.says(*words), outcome.said
        assert not (tmp_path / name).exists()  # nothing was built


@pytest.fixture
def address(stream: Path) -> Iterator[str]:
    """Serves stream.c on this machine's loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Keep the test's output free of requests."""

    handler = functools.partial(Quiet, directory=stream.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/stream.c"
        server.shutdown()


def test_stream_is_fetched_from_an_address(
    root: Path, places: dict[str, Any], address: str, stream: Path, tmp_path: Path
) -> None:
    extra = {
        **places,
        "kernels_directory": str(tmp_path),
        "kernels_copy_sources": False,
        "kernels_stream_source": address,
    }
    (root / f"build/downloads/stream-{sha256(stream)[:12]}.c").unlink(missing_ok=True)
    wrong = play(root, *KERNELS, extra={**extra, "kernels_stream_sha256": "0" * 64})
    assert wrong.status != 0
    assert wrong.says("did not match"), wrong.said
    assert not any(tmp_path.iterdir())
    right = play(root, *KERNELS, extra=extra)
    assert right.status == 0, right.said
    assert (tmp_path / "stream").exists()


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "system": ({"toolchain_os_family": "Suse"}, "of the family Suse, which is not supported"),
    "fact": ({"chaosity_topolgy": "live"}, "an unknown variable: chaosity_topolgy"),
    "variable": ({"kernels_dir": "/tmp"}, "unknown variable: kernels_dir"),
    "optional": ({"toolchain_optional": ["likwid"]}, "unknown tools: likwid"),
    "minimum": ({"toolchain_minimum_versions": {"foi": "3"}}, "unknown tools: foi"),
    "python": ({"runner_python": "/usr/bin/false"}, "needs Python 3.11 or newer"),
}


def test_bad_input_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    hosts = {name: changes for name, (changes, _) in BAD_INPUT.items()}
    outcome = refused(root, tmp_path, hosts)
    for _, sentence in BAD_INPUT.values():
        assert outcome.says(sentence), outcome.said


def test_a_host_that_is_only_planned_for_is_left_alone(root: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {elsewhere.invalid: {chaosity_topology: elsewhere.xml}}}\n")
    outcome = play(root, "-i", inventory)
    assert (outcome.status, outcome.count("unreachable")) == (0, 0), outcome.said


@pytest.fixture(scope="module")
def checkout(root: Path) -> Iterator[Path]:
    """A checkout that belongs to a user without rights, in a place that this user may enter."""
    if os.geteuid() == 0 and subprocess.run([*WITHOUT_ROOT, "true"], check=False).returncode:
        pytest.skip("this sandbox does not let root become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        for name in ("ansible.cfg", "provision.yml"):
            shutil.copy2(root / name, copy)
        for name in ("inventories", "roles", "workflow/chaosity/documents"):
            shutil.copytree(root / name, copy / name)
        if os.geteuid() == 0:
            for path in (copy, *copy.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield copy


@pytest.fixture
def apt_with_a_small_mirror(tmp_path: Path) -> dict[str, str]:
    """Variables with which apt installs into a folder, from a mirror with fio and likwid alone."""
    if os.geteuid() != 0 or not shutil.which("dpkg-deb"):
        pytest.skip("only root installs packages, and this test makes Debian's")
    mirror, state, system = (tmp_path / name for name in ("mirror", "state", "root"))
    index = ""
    for package, program in (("fio", "fio"), ("likwid", "likwid-bench")):
        content = tmp_path / package
        (content / "DEBIAN").mkdir(parents=True)
        (content / "usr/bin").mkdir(parents=True)
        fields = f"Package: {package}\nVersion: 99.1\nArchitecture: all\nMaintainer: A <a@b.c>\n"
        (content / "DEBIAN/control").write_text(f"{fields}Description: a program\n")
        path = content / "usr/bin" / program
        path.write_text(f"#!/bin/sh\necho {program} 99.1\n")
        path.chmod(0o755)
        mirror.mkdir(exist_ok=True)
        file = mirror / f"{package}.deb"
        subprocess.run(["dpkg-deb", "--build", content, file], check=True, capture_output=True)
        index += f"{fields}Filename: ./{file.name}\nSize: {file.stat().st_size}\n"
        index += f"SHA256: {sha256(file)}\nDescription: a program\n\n"
    (mirror / "Packages").write_text(index)
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    admin = system / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (admin / folder).mkdir(parents=True)
    (admin / "status").touch()
    (state / "sources.list").write_text(f"deb [trusted=yes] file:{mirror} ./\n")
    (state / "apt.conf").write_text(
        f'Dir::State "{state}"; Dir::State::status "{admin}/status"; Dir::Cache "{state}/cache";\n'
        f'Dir::Etc::sourcelist "{state}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n'
        f'Dir::Etc::preferencesparts "/dev/null"; APT::Sandbox::User "root";\n'
        f'DPkg::Options {{ "--root={system}"; }};\n'
    )
    path = f"{system}/usr/bin:{os.environ['PATH']}"
    return {"APT_CONFIG": str(state / "apt.conf"), "PATH": path}


def test_a_mirror_without_optional_packages_stops_nothing(
    root: Path, apt_with_a_small_mirror: dict[str, str]
) -> None:
    newer = {"fio": "99", "clpeak": "99", "likwid-bench": "99"}
    extra = {
        "toolchain_minimum_versions": newer,
        "toolchain_optional": ["clpeak", "likwid-bench"],
    }
    outcome = play(root, "--tags", "toolchain", extra=extra, environment=apt_with_a_small_mirror)
    assert outcome.status == 0, outcome.said
    assert outcome.says(
        "Missing on localhost, and what therefore is not measured: clpeak (only benchmarks that"
    ), outcome.said
    assert not outcome.says("; likwid-bench")
    lacking = {**extra, "toolchain_optional": [], "toolchain_test_tools": ["clpeak"]}
    too_old = {**extra, "toolchain_optional": [], "toolchain_minimum_versions": {"fio": "100"}}
    for required, words in (
        (lacking, "No package matching 'clpeak' is available"),
        (too_old, "fio is 99.1 (at least 100 is needed). The distribution's packages are missing"),
    ):
        stopped = play(
            root, "--tags", "toolchain", extra=required, environment=apt_with_a_small_mirror
        )
        assert stopped.status != 0
        assert stopped.says(words), stopped.said


def play_without_root(checkout: Path, **given: Any) -> Outcome:
    """Run provision.yml as a user without rights."""
    # Nobody has no home, where Ansible would keep what it works with.
    places = {name: str(checkout / ".ansible") for name in ("ANSIBLE_HOME", "ANSIBLE_REMOTE_TEMP")}
    environment = {**places, **given.pop("environment", {})}
    before = WITHOUT_ROOT if os.geteuid() == 0 else None
    return play(checkout, before=before, environment=environment, **given)


def test_without_root_the_tools_that_are_there_serve(checkout: Path) -> None:
    outcome = play_without_root(checkout)
    assert outcome.status == 0, outcome.said
    assert (checkout / "build/kernels/chaosity-bandwidth").exists()


def test_changed_sources_are_compiled_again(checkout: Path) -> None:
    play_without_root(checkout)
    link = checkout / "build/kernels/chaosity-bandwidth"
    before = link.readlink()
    with (checkout / "roles/kernels/files/common/errors.c").open("a") as source:
        source.write("/* changed */\n")
    outcome = play_without_root(checkout)
    assert outcome.status == 0, outcome.said
    assert outcome.count("changed") == 1, outcome.said  # compiled and linked
    assert link.readlink() != before


def test_without_root_and_tools_it_says_what_to_install(checkout: Path) -> None:
    programs = checkout / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            if program.name not in TOOLS and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    outcome = play_without_root(checkout, environment={"PATH": str(programs)})
    assert outcome.status != 0
    assert outcome.says("fio is missing, numactl is missing, lstopo is missing"), outcome.said
    assert outcome.says("Have root install the packages"), outcome.said


def test_without_root_a_tool_that_is_too_old_is_named(checkout: Path) -> None:
    outcome = play_without_root(checkout, extra={"toolchain_minimum_versions": {"fio": "99.1"}})
    assert outcome.status != 0
    assert re.search(r"fio is 3\.\d+ \(at least 99\.1 is needed\)", " ".join(outcome.said.split()))

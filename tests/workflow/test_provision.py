"""Provisioning for real: this machine's own tools, compiler and users."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import playbooks
from compiler_cache import ROOT, path_with_cache
from inventories import THIS_MACHINE, write_inventory
from playbooks import NOBODY, WITHOUT_ROOT, Outcome

# `make test` itself provisions this machine; these tests compile everything several times.
pytestmark = pytest.mark.thorough

KERNELS = ("--tags", "kernels")
COMPILERS = ROOT / "build/compilers"
TOOLS = {"fio", "numactl", "sudo"}
# Stands in for McCalpin's file, which is not ours to ship; it tells what it was compiled with.
STREAM = (
    '#include <stdio.h>\nint main(void) { printf("%ld %d\\n", (long)STREAM_ARRAY_SIZE, NTIMES); }\n'
)


def play(root: Path, *arguments: str | Path, **given: Any) -> Outcome:
    """Run provision.yml with compilers that keep objects: nearly every play builds all programs."""
    path = path_with_cache(COMPILERS, os.environ["PATH"])
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


def this_machine(folder: Path, hosts: dict[str, dict[str, Any]]) -> Path:
    """Write an inventory of hosts that are this machine."""
    given = {name: THIS_MACHINE | own for name, own in hosts.items()}
    return write_inventory(folder / "hosts.yml", given)


def test_a_host_is_provisioned_once(root: Path, stream: Path, tmp_path: Path) -> None:
    kernels, runner = tmp_path / "kernels", tmp_path / "runner"
    extra = {
        "kernels_directory": str(kernels),
        "kernels_copy_sources": True,
        "kernels_stream_source": str(stream),
        "kernels_stream_sha256": sha256(stream),
        "runner_directory": str(runner),
    }
    trial = play(root, "--check", extra=extra)
    assert trial.status == 0, trial.said
    assert trial.count("changed") > 0
    assert not kernels.exists()

    provisioned = play(root, extra=extra)
    assert provisioned.status == 0, provisioned.said
    for program in (
        [f"{kernels}/chaosity-bandwidth", "--help"],
        [sys.executable, f"{runner}/chaosity-run.pyz", "--help"],
    ):
        assert subprocess.run(program, capture_output=True, check=False).returncode == 0, program
    said = subprocess.run([kernels / "stream"], capture_output=True, text=True, check=True).stdout
    assert said == "100000000 100\n"  # as in the paper
    if os.geteuid() == 0:
        check_locks()


def check_locks() -> None:
    """See that the locks are there, and that only root can replace them."""
    for path in (Path("/run/chaosity"), *Path("/run/chaosity").glob("*.lock")):
        mode = 0o755 if path.is_dir() else 0o644
        assert (path.stat().st_uid, path.stat().st_mode & 0o7777) == (0, mode), path
    names = {path.name for path in Path("/run/chaosity").iterdir()}
    assert names >= {"measuring.lock", "settings.lock"}
    if Path("/etc/tmpfiles.d").is_dir():
        at_boot = Path("/etc/tmpfiles.d/chaosity.conf").read_text().splitlines()
        assert at_boot[1:] == [f"f /run/chaosity/{name} 0644 root root" for name in sorted(names)]


def test_hosts_build_with_the_compiler_and_the_libraries_that_they_have(
    root: Path, stream: Path, address: str, tmp_path: Path
) -> None:
    compilers = path_with_cache(COMPILERS, os.environ["PATH"])
    gcc = shutil.which("gcc", path=compilers)
    other, without_liburing = tmp_path / "other-gcc", tmp_path / "gcc-without-liburing"
    refusing = 'for word; do [ "$word" = liburing.h ] && exit 1; done'
    version = '[ "$1" = "-###" ] && echo another compiler >&2'
    other.write_text(f'#!/bin/sh\n{version}\nexec {gcc} "$@"\n')
    without_liburing.write_text(f'#!/bin/sh\n{refusing}\nexec {gcc} "$@"\n')
    shared, compiled = tmp_path / "gcc-of-two-hosts", tmp_path / "compiled"
    shared.write_text(f'#!/bin/sh\necho "$*" >> {compiled}\nexec {gcc} "$@"\n')
    for compiler in (other, without_liburing, shared):
        compiler.chmod(0o755)
    lacking, home = tmp_path / "lacking", tmp_path / "home"
    lacking.mkdir()
    (lacking / "chaosity-sum").symlink_to("built-earlier/chaosity-sum")
    hosts = {
        # Two hosts with one home folder; a third has another compiler.
        "a": {"kernels_directory": str(home), "kernels_compiler": str(shared)},
        "b": {"kernels_directory": str(home), "kernels_compiler": str(shared)},
        "other": {"kernels_directory": str(home), "kernels_compiler": str(other)},
        "lacking": {
            "kernels_directory": str(lacking),
            "kernels_copy_sources": False,
            "kernels_compiler": str(without_liburing),
        },
        "fetching": {
            "kernels_directory": str(tmp_path / "fetching"),
            "kernels_copy_sources": False,
            "kernels_stream_source": address,
            "kernels_stream_sha256": sha256(stream),
        },
    }
    (root / f"build/downloads/stream-{sha256(stream)[:12]}.c").unlink(missing_ok=True)
    outcome = play(root, *KERNELS, "-i", this_machine(tmp_path, hosts))
    assert outcome.status == 0, outcome.said
    # Of the hosts with one home, one waited for the other, and found everything built.
    assert compiled.read_text().count(" latency/chaosity_latency.c\n") == 1, outcome.said
    own = home / f"on-{os.uname().nodename}"
    assert (own / "chaosity-latency").resolve() == (home / "chaosity-latency").resolve()
    built = {path.parent for path in home.glob("built-*/chaosity-latency")}
    assert len(built) == 2, built  # each compiler has a folder of its own
    # What cannot be built is left out, and no older program is left in its place.
    assert outcome.says("Skipped on lacking", "chaosity-sum, since liburing is missing")
    assert not outcome.says("chaosity-tasks, since"), outcome.said
    names = {path.name for path in lacking.glob("chaosity-*")}
    assert names >= {"chaosity-bandwidth", "chaosity-tasks"}
    assert not (lacking / "chaosity-sum").is_symlink()
    assert (tmp_path / "fetching/stream").exists()


NO_SUM = {"kernels_stream_sha256": "0" * 64}
# Host by host: what is wrong, and words of the sentence.
BAD_KERNELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sum": (NO_SUM, ["It was not built", "0" * 64]),
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


def test_a_bad_kernels_variable_is_refused(
    root: Path, stream: Path, address: str, tmp_path: Path
) -> None:
    bad = {**BAD_KERNELS, "fetched": (NO_SUM | {"kernels_stream_source": address}, ["not match"])}
    usual = {"kernels_stream_source": str(stream), "kernels_stream_sha256": sha256(stream)}
    hosts = {
        name: {
            **usual,
            **{"kernels_directory": str(tmp_path / name), "kernels_copy_sources": False},
            **changes,
        }
        for name, (changes, _) in bad.items()
    }
    outcome = play(root, *KERNELS, "-i", this_machine(tmp_path, hosts))
    outcome.check_refused({name: words for name, (_, words) in bad.items()})
    assert not [name for name in bad if (tmp_path / name).exists()]  # nothing was built


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
    outcome = play(root, "-i", this_machine(tmp_path, hosts))
    outcome.check_refused({name: [sentence] for name, (_, sentence) in BAD_INPUT.items()})


@pytest.fixture
def checkout(root: Path) -> Iterator[Path]:
    """A checkout that belongs to a user without rights, in a place that this user may enter."""
    if os.geteuid() == 0 and subprocess.run([*WITHOUT_ROOT, "true"], check=False).returncode:
        pytest.skip("this sandbox does not let root become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        for name in ("ansible.cfg", "provision.yml"):
            shutil.copy2(root / name, copy)
        for name in ("inventories", "playbooks", "roles", "workflow/chaosity/documents"):
            shutil.copytree(root / name, copy / name, symlinks=True)
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
    root: Path, apt_with_a_small_mirror: dict[str, str], tmp_path: Path
) -> None:
    newer = {"fio": "99", "clpeak": "99", "likwid-bench": "99"}
    hosts: dict[str, dict[str, Any]] = {
        "served": {
            "toolchain_minimum_versions": newer,
            "toolchain_optional": ["clpeak", "likwid-bench"],
        },
        "lacking": {"toolchain_minimum_versions": newer, "toolchain_test_tools": ["clpeak"]},
        "old": {"toolchain_minimum_versions": {"fio": "100"}},
    }
    for name in ("lacking", "old"):
        hosts[name]["toolchain_optional"] = []
    # The hosts share one apt, so each task is for one host after the other.
    words = ("--tags", "toolchain", "--forks", "1", "-i", this_machine(tmp_path, hosts))
    outcome = play(root, *words, environment=apt_with_a_small_mirror)
    assert outcome.count("failed") == 2 and "fatal: [served]" not in outcome.said, outcome.said
    assert outcome.says(
        "Missing on served, and what therefore is not measured: clpeak (only benchmarks that",
        "No package matching 'clpeak' is available",
        "fio is 99.1 (at least 100 is needed). The distribution's packages are missing",
    ), outcome.said
    assert not outcome.says("; likwid-bench")


def play_without_root(checkout: Path, only: Sequence[str] = (), **given: Any) -> Outcome:
    """Run provision.yml as a user without rights."""
    # Nobody has no home, where Ansible would keep what it works with.
    places = {name: str(checkout / ".ansible") for name in ("ANSIBLE_HOME", "ANSIBLE_REMOTE_TEMP")}
    environment = {**places, **given.pop("environment", {})}
    before = WITHOUT_ROOT if os.geteuid() == 0 else None
    return play(checkout, *only, before=before, environment=environment, **given)


def test_without_root_the_tools_that_are_there_serve(checkout: Path) -> None:
    outcome = play_without_root(checkout)
    assert outcome.status == 0, outcome.said
    link = checkout / "build/kernels/chaosity-bandwidth"
    before = link.readlink()
    # Changed sources are compiled again.
    with (checkout / "roles/kernels/files/common/errors.c").open("a") as source:
        source.write("/* changed */\n")
    outcome = play_without_root(checkout, only=KERNELS)
    assert outcome.status == 0, outcome.said
    assert outcome.count("changed") == 1, outcome.said  # compiled and linked
    assert link.readlink() != before


def test_without_root_it_says_what_to_install(checkout: Path) -> None:
    programs = checkout / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            if program.name not in TOOLS and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    outcome = play_without_root(
        checkout,
        environment={"PATH": str(programs)},
        extra={"toolchain_minimum_versions": {"lstopo": "99.1"}},
    )
    assert outcome.status != 0
    said = " ".join(outcome.said.split())
    assert re.search(r"lstopo is \d+\.\d+\S* \(at least 99\.1 is needed\)", said), said
    assert outcome.says("fio is missing, numactl is missing", "Have root install the packages"), (
        said
    )

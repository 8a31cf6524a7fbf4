"""Runs provision.yml on an inventory, unless nothing has changed since it last succeeded there.

    provision.py [--force] INVENTORY [ARGUMENT...]

INVENTORY is what `ansible-playbook -i` takes. Each ARGUMENT goes to ansible-playbook. `--force`
runs the playbook in any case.

ansible-playbook needs about ten seconds of processor time to find out that nothing is to do. This
program needs a tenth of a second: after a successful run it writes a stamp below build/provisioned
with hashes of everything that provisioning depends on (the playbook, roles, inventory, the runner's
sources, the lock file, Ansible's environment variables, this machine's processor) and of what
provisioning left on this machine (programs that were built, tools that were found, the state of the
package manager). If all of it is the same, the playbook is not started. Contents are compared, not
dates, so neither a reboot nor a fresh checkout of the same files needs a new run.

Hosts that are reached over a network are always provisioned, because only a look at them shows
whether they still have everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PLAYBOOK = "provision.yml"
# Where provision.yml writes a JSON file for each host; see its last task.
EVIDENCE = "CHAOSITY_EVIDENCE"
# What the playbook reads, besides the inventory: files and folders below the project.
SOURCES = (
    *(PLAYBOOK, "ansible.cfg", "requirements.lock", "group_vars", "host_vars", "roles"),
    *("workflow/schemas/host.schema.yaml", "workflow/chaosity/__init__.py"),
    # The runner is packed from these; see workflow/chaosity/runner/build.py.
    *(f"workflow/chaosity/{name}" for name in ("runner", "place", "records.py", "errors.py")),
)
# These change whenever a package is installed, upgraded or removed.
PACKAGE_DATABASES = (
    *("/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages"),
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
)
# Some tools are only in the folders of root's programs.
ROOT_FOLDERS = ":/usr/sbin:/sbin"
IGNORED_FOLDERS = {"__pycache__", "build"}


def hash_of(path: Path) -> str:
    """SHA-256 of a file's content; "missing" where there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"


def hash_of_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def hashes_below(path: Path) -> dict[str, str]:
    """Hash of a file, or of every file below a folder, by path."""
    if not path.is_dir():
        return {str(path): hash_of(path)} if path.exists() else {}
    found = {}
    for folder, subfolders, files in os.walk(path, followlinks=True):
        subfolders[:] = [name for name in subfolders if name not in IGNORED_FOLDERS]
        found.update({str(Path(folder, name)): hash_of(Path(folder, name)) for name in files})
    return found


def processor() -> str:
    """Model and features of this machine's processor, for which the kernels are built."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return "unknown"
    lines = (line for line in first.splitlines() if not line.startswith(("cpu MHz", "bogomips")))
    return hash_of_text("\n".join(lines))


def inputs_of(inventory: Path, arguments: Iterable[str]) -> dict[str, str]:
    """All that provisioning depends on: a hash or a text by name."""
    found: dict[str, str] = {}
    files = (Path(word.removeprefix("@")) for word in arguments if word.startswith("@"))
    for path in (*(ROOT / name for name in SOURCES), inventory, *files):
        found.update(hashes_below(path))
    # Values are hashed because some of them can be passwords.
    variables = sorted(name for name in os.environ if name.startswith("ANSIBLE_"))
    return {
        **found,
        **{f"environment variable {name}": hash_of_text(os.environ[name]) for name in variables},
        "arguments of ansible-playbook": hash_of_text("\0".join(arguments)),
        "PATH": os.environ.get("PATH", ""),
        "the processor": processor(),
        "the Python interpreter": f"{sys.executable} {sys.version}",
    }


def state_of(files: Iterable[str], programs: Iterable[str]) -> dict[str, str]:
    """What this machine has of what provisioning left or found there: a hash or a text by name.

    Args:
        files: paths of what was built or installed.
        programs: names of tools, as a shell finds them.
    """
    found = {path: hash_of(Path(path)) for path in files}
    for program in programs:
        path = shutil.which(program, path=os.environ.get("PATH", "") + ROOT_FOLDERS)
        stat = Path(path).stat() if path else None
        found[program] = f"{path} {stat.st_size} {stat.st_mtime_ns}" if stat else "missing"
    for path in PACKAGE_DATABASES:
        if Path(path).exists():
            found[f"the list of installed packages ({path})"] = hash_of(Path(path))
    return found


def first_difference(before: dict[str, str], now: dict[str, str]) -> str | None:
    """Names what differs between two states of the same things; None when nothing does."""
    for name in (*now, *before):
        if before.get(name) != now.get(name):
            gone = now.get(name, "missing") == "missing"
            shown = os.path.relpath(name, ROOT) if name.startswith(f"{ROOT}/") else name
            return f"{shown} is missing" if gone else f"{shown} is new or changed"
    return None


def is_program(inventory: Path) -> bool:
    """Whether an inventory is, or has in its folder, a program, which may answer anew each time."""
    paths = inventory.rglob("*") if inventory.is_dir() else [inventory]
    return any(path.is_file() and os.access(path, os.X_OK) for path in paths)


def why_to_run(stamp: Path, inventory: Path, inputs: dict[str, str]) -> str | None:
    """The reason why the playbook has to run, as half a sentence; None when there is no reason."""
    try:
        last = json.loads(stamp.read_text())
        state = state_of(last["files"], last["programs"])
        before: dict[str, str] = {**last["inputs"], **last["state"]}
    except (OSError, ValueError, KeyError):
        return "it has not succeeded here yet, or for hosts that are reached over a network"
    if not inventory.exists() or is_program(inventory):
        return f"{inventory} is not a file or a folder of files"
    return first_difference(before, {**inputs, **state})


def run_playbook(inventory: str, arguments: Iterable[str], evidence: Path) -> int:
    """Run provision.yml; returns ansible-playbook's exit code.

    Args:
        inventory: as `ansible-playbook -i` takes it.
        arguments: further arguments.
        evidence: an empty folder, into which the playbook writes what each host has.
    """
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [str(program), "-i", inventory, PLAYBOOK, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, EVIDENCE: str(evidence)}, check=False
    ).returncode


def write_stamp(stamp: Path, inputs: dict[str, str], evidence: Path) -> None:
    """Note what a successful run left; no stamp when a host is reached over a network.

    Args:
        stamp: the file to write.
        inputs: what provisioning depended on when it began.
        evidence: the folder with a file for each host.
    """
    hosts = [json.loads(path.read_text()) for path in sorted(evidence.glob("*.json"))]
    if any(host["connection"] != "local" for host in hosts):
        return
    files = sorted({path for host in hosts for path in host["files"]})
    programs = sorted({program for host in hosts for program in host["programs"]})
    state = state_of(files, programs)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    content = {"inputs": inputs, "state": state, "files": files, "programs": programs}
    stamp.write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    """Provision if there is a reason to; returns the exit code."""
    words = sys.argv[1:]
    force = "--force" in words[:1]
    inventory, *arguments = words[force:]
    path = Path(inventory).resolve()
    name = hash_of_text("\0".join([str(path), *arguments]))[:12]
    stamp = ROOT / "build/provisioned" / f"{path.name}-{name}.json"
    inputs = inputs_of(path, arguments)
    reason = None if force else why_to_run(stamp, path, inputs)
    if reason is None and not force:
        print(f"{inventory} is provisioned and unchanged; `make provision` provisions it again.")
        return 0
    if reason is not None and stamp.exists():
        print(f"Provisioning {inventory}: {reason}.", flush=True)
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as evidence:
        code = run_playbook(inventory, arguments, Path(evidence))
        if code == 0:
            write_stamp(stamp, inputs, Path(evidence))
    return code


if __name__ == "__main__":
    sys.exit(main())

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

from chaosity.errors import UserError
from chaosity.hosts.ansible_programs import ansible_command

ROOT = Path(__file__).resolve().parent
PLAYBOOK = "provision.yml"
# Where provision.yml writes a JSON file for each host; see its last task.
EVIDENCE = "CHAOSITY_EVIDENCE"
# What the playbook reads, besides the inventory: files and folders below the project.
SOURCES = (
    *(
        PLAYBOOK,
        "firmware.yml",
        "ansible.cfg",
        "requirements.lock",
        "group_vars",
        "host_vars",
        "roles",
    ),
    *("workflow/chaosity/documents/inventory.py", "workflow/chaosity/__init__.py"),
    # The runner is packed from these; see workflow/chaosity/runner/build_zipapp.py.
    *(f"workflow/chaosity/{name}" for name in ("runner", "place", "records")),
    *(f"workflow/chaosity/{name}" for name in ("cpusets.py", "errors.py")),
)
# These change whenever a package is installed, upgraded or removed.
PACKAGE_DATABASES = (
    *("/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages"),
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
)
# Some tools are only in the folders of root's programs.
ROOT_FOLDERS = ":/usr/sbin:/sbin"
IGNORED_FOLDERS = {"__pycache__", "build"}


def _hash_of(path: Path) -> str:
    """Return the SHA-256 of a file's content; "missing" if the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"


def _hash_of_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _hashes_below(path: Path) -> dict[str, str]:
    """Return the hash of a file, or of every file below a folder, by path."""
    if not path.is_dir():
        return {str(path): _hash_of(path)} if path.exists() else {}
    found = {}
    for folder, subfolders, files in os.walk(path, followlinks=True):
        subfolders[:] = [name for name in subfolders if name not in IGNORED_FOLDERS]
        found.update({str(Path(folder, name)): _hash_of(Path(folder, name)) for name in files})
    return found


def _processor() -> str:
    """Return a hash of the processor's model and features, for which the kernels are built."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return "unknown"
    lines = (line for line in first.splitlines() if not line.startswith(("cpu MHz", "bogomips")))
    return _hash_of_text("\n".join(lines))


def _inputs_of(inventory: Path, arguments: Iterable[str]) -> dict[str, str]:
    """Return everything that provisioning depends on: a hash or a text by name."""
    found: dict[str, str] = {}
    files = (Path(word.removeprefix("@")) for word in arguments if word.startswith("@"))
    for path in (*(ROOT / name for name in SOURCES), inventory, *files):
        found.update(_hashes_below(path))
    # Values are hashed because some of them can be passwords.
    variables = sorted(name for name in os.environ if name.startswith("ANSIBLE_"))
    return {
        **found,
        **{f"environment variable {name}": _hash_of_text(os.environ[name]) for name in variables},
        "arguments of ansible-playbook": _hash_of_text("\0".join(arguments)),
        "PATH": os.environ.get("PATH", ""),
        "the processor": _processor(),
        "the Python interpreter": f"{sys.executable} {sys.version}",
    }


def _state_of(files: Iterable[str], programs: Iterable[str]) -> dict[str, str]:
    """Return the state of files, tools and package lists on this machine: a text by name.

    Args:
        files: paths of what was built or installed.
        programs: names of tools, as a shell finds them.
    """
    found = {path: _hash_of(Path(path)) for path in files}
    for program in programs:
        path = shutil.which(program, path=os.environ.get("PATH", "") + ROOT_FOLDERS)
        stat = Path(path).stat() if path else None
        found[program] = f"{path} {stat.st_size} {stat.st_mtime_ns}" if stat else "missing"
    for path in PACKAGE_DATABASES:
        if Path(path).exists():
            found[f"the list of installed packages ({path})"] = _hash_of(Path(path))
    return found


def _first_difference(before: dict[str, str], now: dict[str, str]) -> str | None:
    """Describe the first difference between two states; return None if they are equal."""
    for name in (*now, *before):
        if before.get(name) != now.get(name):
            gone = now.get(name, "missing") == "missing"
            shown = os.path.relpath(name, ROOT) if name.startswith(f"{ROOT}/") else name
            return f"{shown} is missing" if gone else f"{shown} is new or changed"
    return None


def _is_program(inventory: Path) -> bool:
    """Return whether an inventory is or contains a program, whose output may change each time."""
    paths = inventory.rglob("*") if inventory.is_dir() else [inventory]
    return any(path.is_file() and os.access(path, os.X_OK) for path in paths)


def _why_to_run(stamp: Path, inventory: Path, inputs: dict[str, str]) -> str | None:
    """Return why the playbook must run, as half a sentence; None if it need not run."""
    try:
        last = json.loads(stamp.read_text())
        state = _state_of(last["files"], last["programs"])
        before: dict[str, str] = {**last["inputs"], **last["state"]}
    except (OSError, ValueError, KeyError):
        return "it has not succeeded here yet, or hosts are reached over a network"
    if not inventory.exists() or _is_program(inventory):
        return f"{inventory} is not a file or a folder of files"
    return _first_difference(before, {**inputs, **state})


def _run_playbook(inventory: str, arguments: Iterable[str], evidence: Path) -> int:
    """Run provision.yml and return ansible-playbook's exit code.

    Args:
        inventory: as `ansible-playbook -i` takes it.
        arguments: further arguments.
        evidence: an empty folder; the playbook writes a file for each host into it.
    """
    command = [*ansible_command("ansible-playbook"), "-i", inventory, PLAYBOOK, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, EVIDENCE: str(evidence)}, check=False
    ).returncode


def _write_stamp(stamp: Path, inputs: dict[str, str], evidence: Path) -> None:
    """Write the stamp of a successful run, unless a host is reached over a network.

    Args:
        stamp: the file to write.
        inputs: result of _inputs_of() from before the run.
        evidence: the folder into which the playbook wrote a file for each host.
    """
    hosts = [json.loads(path.read_text()) for path in sorted(evidence.glob("*.json"))]
    if any(host["connection"] != "local" for host in hosts):
        return
    files = sorted({path for host in hosts for path in host["files"]})
    programs = sorted({program for host in hosts for program in host["programs"]})
    state = _state_of(files, programs)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    content = {"inputs": inputs, "state": state, "files": files, "programs": programs}
    stamp.write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    """Run the playbook if there is a reason to, and return the exit code.

    Raises:
        UserError: this user cannot run Ansible.
    """
    words = sys.argv[1:]
    force = "--force" in words[:1]
    inventory, *arguments = words[force:]
    path = Path(inventory).resolve()
    name = _hash_of_text("\0".join([str(path), *arguments]))[:12]
    stamp = ROOT / "build/provisioned" / f"{path.name}-{name}.json"
    inputs = _inputs_of(path, arguments)
    reason = None if force else _why_to_run(stamp, path, inputs)
    if reason is None and not force:
        print(f"{inventory} is provisioned and unchanged; `make provision` provisions it again.")
        return 0
    if reason is not None and stamp.exists():
        print(f"Provisioning {inventory}: {reason}.", flush=True)
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as evidence:
        code = _run_playbook(inventory, arguments, Path(evidence))
        if code == 0:
            _write_stamp(stamp, inputs, Path(evidence))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"provision.py: {error}")

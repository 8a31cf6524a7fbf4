"""Slurm's HealthCheckProgram: runs `chaosity check` on an idle node at most once in an interval.

Slurm starts this program as root every few minutes. Most starts end at once, because the last check
is recent or a job uses the node. The check itself runs as the user who owns the results, and only
this program, which only root can change, uses root's rights: to drain the node or to comment on it.
It needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pwd
import re
import subprocess
import sys
import syslog
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTINGS_FOLDER = Path("/etc/chaosity-monitor")
STATE_FOLDER = Path("/var/lib/chaosity-monitor")
# Reasons and comments that begin so are this program's own; it changes no others.
PREFIX_OF_OWN_REASONS = "chaosity: "
# Slurm ends the program after 60 s.
MOST_CHECK_SECONDS = 55.0
# How often to look for a job that started meanwhile.
JOB_QUERY_INTERVAL_SECONDS = 2.0
# A host that could not be checked, for example because somebody works on it, is tried again then.
RETRY_SECONDS = 1800.0
# A longer reason is hard to read in the output of sinfo.
MOST_REASON_CHARACTERS = 250
# The exit statuses of `chaosity check`.
FINE, WARNING, FAULT, NOT_CHECKED = range(4)
# States of jobs that use a node.
STATES_OF_BUSY_JOBS = "RUNNING,COMPLETING,CONFIGURING,STAGE_OUT,SUSPENDED"
# What the check says about the hardware: severity, and the rest of the line.
NODE_PROBLEM_LINE = re.compile(r"^\S+: (fault|warning) \[node_problem\] (.+)$", re.MULTILINE)


class MonitorError(Exception):
    """The node cannot be monitored; the text is one sentence."""


def say(text: str, priority: int = syslog.LOG_INFO) -> None:
    """Write lines to the system's log and to standard output."""
    for line in text.splitlines():
        syslog.syslog(priority, line)
        print(line)


def settings_file(node: str) -> Path:
    """Return the path of a node's settings. A check locks this file."""
    return SETTINGS_FOLDER / f"{node}.json"


def read_settings(node: str | None) -> dict[str, Any]:
    """Return the settings of a node; without a name, of the only node of this machine.

    Raises:
        MonitorError: this machine has no such node.
    """
    known = sorted(path.stem for path in SETTINGS_FOLDER.glob("*.json"))
    if not node and len(known) == 1:
        [node] = known
    if node not in known:
        raise MonitorError(f"the node must be one of: {', '.join(known)}, and not {node!r}")
    settings: dict[str, Any] = json.loads(settings_file(node).read_text(encoding="utf-8"))
    return settings


def read_state(node: str) -> dict[str, float] | None:
    """Return what is known of the node's last check; an unreadable file counts as none."""
    try:
        state = json.loads((STATE_FOLDER / f"{node}.json").read_text(encoding="utf-8"))
        return {"time": float(state["time"]), "status": int(state["status"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(node: str, status: int, output: str) -> None:
    """Replace the file of the last check in one step: its time, exit status and output."""
    STATE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    new = STATE_FOLDER / f"{node}.new"
    state = {"time": time.time(), "status": status, "output": output}
    new.write_text(json.dumps(state), encoding="utf-8")
    new.replace(STATE_FOLDER / f"{node}.json")


def is_due(state: dict[str, float] | None, interval: float, now: float) -> bool:
    """Return whether the last check is long enough ago.

    Args:
        state: of the last check, or None.
        interval: seconds between two checks.
        now: seconds since 1970. If the clock was set back, the check is due.
    """
    if state is None or state["time"] > now:
        return True
    wait = min(interval, RETRY_SECONDS) if state["status"] == NOT_CHECKED else interval
    return now - state["time"] >= wait


def run_slurm_command(settings: dict[str, Any], program: str, *arguments: str) -> str:
    """Return what a command of Slurm prints.

    Raises:
        MonitorError: the command fails.
    """
    command = [str(Path(settings["scontrol"]).with_name(program)), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if answer.returncode:
        raise MonitorError(f"{program} failed: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout


def is_busy(settings: dict[str, Any]) -> bool:
    """Return whether a job uses the node."""
    where = f"--nodelist={settings['node']}"
    return bool(
        run_slurm_command(
            settings, "squeue", "--noheader", where, f"--states={STATES_OF_BUSY_JOBS}", "-o", "%i"
        )
    )


def is_removed(settings: dict[str, Any]) -> bool:
    """Return whether the node is no longer monitored, so that nothing may be written about it."""
    return not settings_file(settings["node"]).exists()


def options_to_run_as(name: str) -> dict[str, Any]:
    """Return the options of Popen that run a program as a user, with this user's environment."""
    user = pwd.getpwnam(name)
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": user.pw_dir,
        "USER": name,
        "LC_ALL": "C.UTF-8",
    }
    options: dict[str, Any] = {"env": environment, "cwd": "/"}
    if user.pw_uid != os.geteuid():
        groups = os.getgrouplist(name, user.pw_gid)
        options.update(user=user.pw_uid, group=user.pw_gid, extra_groups=groups)
    return options


def check(settings: dict[str, Any]) -> tuple[int, str]:
    """Run the check and return its exit status and its output.

    The check is ended if it takes too long, a job starts on the node, or the node is no longer
    monitored. Its status is then NOT_CHECKED.
    """
    begin = time.monotonic()
    process = subprocess.Popen(
        settings["command"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options_to_run_as(settings["user"]),
    )
    try:
        while True:
            try:
                output = process.communicate(timeout=JOB_QUERY_INTERVAL_SECONDS)[0]
            except subprocess.TimeoutExpired:
                if time.monotonic() - begin > MOST_CHECK_SECONDS:
                    why = f"the check took more than {MOST_CHECK_SECONDS:.0f} s"
                elif is_removed(settings):
                    why = "the node is no longer monitored"
                elif is_busy(settings):
                    why = "a job started on the node"
                else:
                    continue
                return NOT_CHECKED, f"{settings['host']}: not checked: {why}"
            # A status of none of these means that the check itself failed.
            status = process.returncode
            return status if status in (FINE, WARNING, FAULT) else NOT_CHECKED, printable(output)
    finally:
        end_process(process)


def end_process(process: subprocess.Popen[str]) -> None:
    """End a process that runs; the loads that it started end with it."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def printable(text: str) -> str:
    """Return a text without characters that could change a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


def describe_node(settings: dict[str, Any]) -> dict[str, Any]:
    """Return state, reason and comment of the node, as `scontrol show node` prints them."""
    text = run_slurm_command(settings, "scontrol", "show", "node", settings["node"])

    def value(pattern: str) -> str:
        found = re.search(pattern, text, re.MULTILINE)
        return found.group(1) if found else ""

    # A reason ends with its user and time: `[root@2026-11-24T02:10:00]`.
    return {
        "drained": "DRAIN" in value(r"^\s*State=(\S+)"),
        "reason": value(r"^\s*Reason=(.*?)(?: \[\S+@\S+\])?\s*$"),
        "comment": value(r"^\s*Comment=(.*?)\s*$"),
    }


def wanted_changes(
    status: int, output: str, node: dict[str, Any], *, drain: bool, resume: bool
) -> list[list[str]]:
    """Return the changes of a node in Slurm: arguments of `scontrol update` for each.

    A node that was drained by this program is resumed only with `resume`, and a reason or comment
    of somebody else is never changed.

    Args:
        status: exit status of the check.
        output: what the check printed.
        node: from `describe_node`.
        drain: whether a fault drains the node; otherwise it is only a comment.
        resume: whether a fine check resumes a node that was drained by this program.
    """
    changes: list[list[str]] = []
    problems = NODE_PROBLEM_LINE.findall(output)
    # A fault is reported rather than a warning.
    problems.sort(key=lambda problem: problem[0] != "fault")
    comment, drained_here = "", node["drained"] and node["reason"].startswith(PREFIX_OF_OWN_REASONS)
    if problems and status in (WARNING, FAULT):
        severity, text = problems[0]
        kind = "" if severity == "fault" else "warning: "
        comment_text = f"{PREFIX_OF_OWN_REASONS}{kind}node_problem: {text}"[:MOST_REASON_CHARACTERS]
        if status == FAULT and drain and not node["drained"]:
            changes.append(["state=drain", f"reason={comment_text}"])
        elif not drained_here:
            comment = comment_text
    elif status == FINE and resume and drained_here:
        changes.append(["state=resume"])
    is_free = not node["comment"] or node["comment"].startswith(PREFIX_OF_OWN_REASONS)
    if status != NOT_CHECKED and is_free and node["comment"] != comment:
        changes.append([f"comment={comment}"])
    return changes


@contextlib.contextmanager
def lock_settings(node: str) -> Iterator[bool]:
    """Lock the node's settings; yield whether no other start of this program has locked them.

    Slurm starts the program again although it still runs.
    """
    with settings_file(node).open(encoding="utf-8") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def monitor(settings: dict[str, Any], *, now: bool) -> int:
    """Check the node if it is time and nobody uses it, report to Slurm, return the exit status."""
    name = settings["node"]
    state = read_state(name)
    if not now and not is_due(state, settings["interval_seconds"], time.time()):
        return FINE
    if is_busy(settings):
        if now:
            say(f"{settings['host']}: not checked: a job uses the node")
        return NOT_CHECKED
    status, output = check(settings)
    if is_removed(settings):
        return NOT_CHECKED
    write_state(name, status, output)
    say(output, syslog.LOG_WARNING if status in (WARNING, FAULT) else syslog.LOG_INFO)
    node = describe_node(settings)
    drain = settings["action"] == "drain"
    for change in wanted_changes(status, output, node, drain=drain, resume=settings["resume"]):
        run_slurm_command(settings, "scontrol", "update", f"nodename={name}", *change)
        say(f"{settings['host']}: scontrol update nodename={name} {' '.join(change)}")
    return status


def remove(settings: dict[str, Any]) -> None:
    """Remove the node's settings, wait for the end of a check, and remove its comment."""
    path = settings_file(settings["node"])
    with path.open(encoding="utf-8") as locked:
        path.unlink()  # a running check sees this and writes nothing more
        fcntl.flock(locked, fcntl.LOCK_EX)
    if describe_node(settings)["comment"].startswith(PREFIX_OF_OWN_REASONS):
        run_slurm_command(
            settings, "scontrol", "update", f"nodename={settings['node']}", "comment="
        )
        print("comment removed")


def main() -> int:
    """Run from Slurm, or by an administrator."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--node", default=os.environ.get("SLURMD_NODENAME"), help="name in Slurm")
    parser.add_argument("--now", action="store_true", help="check now, however recent the last is")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="monitor the node no longer: remove its settings and its comment, end a check",
    )
    arguments = parser.parse_args()
    # /dev/log is missing where no system log runs.
    with contextlib.suppress(OSError):
        syslog.openlog("chaosity-monitor")
    try:
        settings = read_settings(arguments.node)
        if arguments.remove:
            remove(settings)
            return 0
        with lock_settings(settings["node"]) as is_alone:
            if is_alone:
                status = monitor(settings, now=arguments.now)
            else:
                status = NOT_CHECKED
                print(f"{settings['host']}: not checked: another check of the node runs")
    except (MonitorError, OSError, KeyError, subprocess.TimeoutExpired) as error:
        say(f"chaosity-monitor: {error}", syslog.LOG_ERR)
        return 1
    # Slurm logs every other status as a failure of this program.
    return status if arguments.now else 0


if __name__ == "__main__":
    sys.exit(main())

"""Programs with their pages placed, on this machine: real programs, the real kernel's account."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_files import WEIGHTS, placed_point, report

from chaosity.cli.weights import canonical_shares_of_workers, placement_argument_parser
from chaosity.place import numa_system_calls
from chaosity.place.__main__ import main
from chaosity.runner import observed_state
from chaosity.runner.__main__ import put_tools_folder_first_in_path
from chaosity.runner.build_zipapp import zipapp_bytes
from chaosity.runner.point_measurement import measure_point as measured
from machines import refusal_by_chaosity
from wait_until_true import wait_until

IMAGINED = str(Path(__file__).resolve().parents[2] / "support/placement_sensitive_program.py")
ALLOCATES = "import time; x = bytearray(8 << 20); print('allocated', flush=True); "
# Many short sleeps take longer on a busy machine, where chaosity-place also looks less often.
ALLOCATES += "[time.sleep(0.05) for _ in range(14)]"


def python(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


pytestmark = pytest.mark.usefixtures("numa_maps")


@pytest.mark.parametrize(
    ("policy", "arguments", "method"),
    [
        ("uniform_workers", (), "interleave"),
        ("canonical", ("--shares", "0:1", "--method", "move_pages"), "move_pages"),
    ],
)
def test_the_report_has_wanted_and_seen_shares(kernel, tmp_path, policy, arguments, method):
    path = tmp_path / "report.json"
    done = kernel.run("--report", str(path), *arguments, *python(ALLOCATES), policy=policy)
    assert (done.returncode, done.stdout, done.stderr) == (0, "allocated\n", "")
    found = report(path)
    assert (found["policy"], found["method"], found["exit_status"]) == (policy, method, 0)
    assert found["seen"] == {"0": 1.0}
    assert found["bytes_by_node"]["0"] >= 8 << 20
    assert (found["wanted"], found["placed"], found["reason"]) == ({"0": 1.0}, True, None)
    balancing = found["settings"]["proc/sys/kernel/numa_balancing"]
    assert balancing == {"was": "1", "is": "0"}


def test_the_kernels_weights_are_used_where_they_exist(kernel, tmp_path):
    if not numa_system_calls.supports_policy(numa_system_calls.WEIGHTED_INTERLEAVE, [0]):
        pytest.skip("this kernel has no MPOL_WEIGHTED_INTERLEAVE")
    path = tmp_path / "report.json"
    given = ("--shares", "0:1", "--method", "weighted_interleave", "--report", str(path))
    maps = python(f"{ALLOCATES}; print(open('/proc/self/numa_maps').read())")
    done = kernel.run(*given, *maps, policy="canonical")
    assert done.returncode == 0, done.stderr
    assert "weighted interleave:0 anon=" in done.stdout
    assert report(path)["method"] == "weighted_interleave"
    assert report(path)["settings"][f"{WEIGHTS}0"] == {"was": "7", "is": "1"}
    assert kernel.get(f"{WEIGHTS}0") == "7"


def test_a_named_mapping_counts_alone_and_is_placed_before_the_ready_line(kernel, tmp_path):
    path = tmp_path / "report.json"
    given = ("--report", str(path), "--", sys.executable, IMAGINED, "1", "1", "60", "16")
    run = kernel.start(*given)
    line = json.loads(run.stdout.readline())
    assert line["event"] == "ready"
    assert report(path)["bytes_by_node"] == {"0": 16 << 20}
    run.terminate()
    assert run.wait(10) == 128 + signal.SIGTERM


def test_input_and_output_without_a_line_end_are_passed_on(kernel):
    text = "{no event\nand no end"
    done = subprocess.run(
        kernel.command("--", "cat"), input=text, capture_output=True, text=True, check=False
    )
    assert done.stdout == text


def test_a_closed_reader_ends_the_program_as_usual(kernel):
    run = kernel.start("--", "yes")
    run.stdout.read(10)
    run.stdout.close()
    assert run.wait(10) == 128 + signal.SIGPIPE


def test_on_a_terminal_the_program_gets_keyboard_signals_once(kernel):
    code = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print(sys.stdin.isatty(), sys.stdout.isatty(), flush=True)\n"
        "time.sleep(1.5)\n"
        "print('heard', len(seen), flush=True)\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        command = kernel.command(*python(code))
        os.execvp(command[0], command)
    text = b""
    while b"True True" not in text:
        text += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"\n" not in text.partition(b"heard")[2]:
        text += os.read(terminal, 1000)
    assert b"heard 1" in text
    os.waitpid(child, 0)


def test_a_program_that_ends_early_is_reported_with_its_status(kernel, tmp_path):
    path = tmp_path / "report.json"
    done = kernel.run("--report", str(path), "--", "sh", "-c", "exit 9")
    assert done.returncode == 9
    assert "before it ended with status 9" in report(path)["reason"]
    assert (report(path)["placed"], report(path)["seen"]) == (None, {})


def test_misplaced_pages_give_exit_status_3(kernel):
    """One node cannot have pages elsewhere, so the wish is bent after the plan was made."""
    code = (
        "import sys\n"
        "from chaosity.place import run_placed_program as session\n"
        "from chaosity.place.__main__ import main\n"
        "session.page_migration.move_pages_to_shares = lambda found, wanted: 0\n"
        "shares = session.page_migration.page_shares_by_node\n"
        "session.page_migration.page_shares_by_node = lambda by_node: {1: 1.0} if by_node else {}\n"
        "main(sys.argv[1:])\n"
    )
    arguments = kernel.arguments(*python(ALLOCATES))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "deviates by 100.0 % of all pages: wanted 0:1.000000, seen 1:1.000000" in done.stderr


# Others are in tests/golden/place.txt.
@pytest.mark.parametrize(
    ("policy", "arguments", "words"),
    [
        ("uniform_all", ("--shares", "0:0.7,1:0.3", "--", "true"), "means equal shares"),
        ("canonical", ("--shares", "9:1", "--", "true"), "node 9 has no memory"),
        ("first_touch", ("--shares", "0:1", "--", "true"), "lets the kernel choose the nodes"),
        ("uniform_all", ("--workers", "1", "--", "true"), "the node has no processing unit"),
        ("uniform_all", ("--workers", "x", "--", "true"), "'x' is not a list of numbers"),
        ("uniform_all", ("--cpus", "99999", "--", "true"), "processing unit 99999 does not"),
        ("uniform_all", (), "names no program"),
        ("uniform_all", ("--search", "--rate", "lines=(", "--", "true"), "regular expression"),
        ("uniform_all", ("--report", "/nowhere/at/all.json", "--", "true"), "is not writable"),
    ],
)
def test_wrong_input_is_one_sentence_and_nothing_runs(kernel, capsys, policy, arguments, words):
    with pytest.raises(SystemExit) as ended:
        main(kernel.arguments(*arguments, policy=policy))
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert kernel.balancing == "1"


def test_a_kernel_without_weighted_interleave_is_reported(kernel):
    (kernel.root / "proc/sys/kernel/numa_balancing").unlink()
    done = kernel.run("--", "true", policy="autonuma")
    assert "this kernel has no /proc/sys/kernel/numa_balancing" in done.stderr
    (kernel.root / f"{WEIGHTS}0").unlink()
    given = ("--shares", "0:1", "--method", "weighted_interleave", "--", "true")
    done = kernel.run(*given, policy="canonical")
    assert "which came with Linux 6.9; use --method move_pages" in done.stderr
    assert done.returncode == 2


def test_the_zipapp_runs_chaosity_place_and_finds_it_in_its_folder(tmp_path, monkeypatch):
    archive = tmp_path / "chaosity-run.pyz"
    archive.write_bytes(zipapp_bytes())
    command = [sys.executable, "-I", str(archive), "--place", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "usage: chaosity-place" in done.stdout, done.stderr
    monkeypatch.setattr(sys, "argv", [str(archive)])
    monkeypatch.setenv("PATH", "/usr/bin")
    put_tools_folder_first_in_path(None)
    assert os.environ["PATH"] == f"{tmp_path / 'kernels'}:{tmp_path}:/usr/bin"
    put_tools_folder_first_in_path(Path("/opt/kernels"))
    assert os.environ["PATH"].startswith(f"/opt/kernels:{tmp_path}:")


def test_weights_come_from_a_matrix(tmp_path):
    matrix = tmp_path / "matrix_GBps.csv"
    matrix.write_text("node,0,1,2\n0,20,10,10\n1,10,20,10\n")
    given = ["--policy", "canonical", "--workers", "0-1", "--matrix", str(matrix), "--", "true"]
    found = canonical_shares_of_workers(placement_argument_parser().parse_args(given))
    assert found == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


def test_a_matrix_with_shares_or_a_missing_matrix_is_refused(tmp_path):
    matrix = tmp_path / "matrix_GBps.csv"
    matrix.write_text("node,0,1\n0,20,10\n1,10,20\n")
    for arguments, words in (
        (("--matrix", str(tmp_path / "none.csv")), "does not exist"),
        (
            ("--matrix", str(tmp_path), "--shares", "0:1"),
            "--shares is given too; remove --matrix or --shares",
        ),
        (("--matrix", str(tmp_path)), "the folder has no results of a host"),
        (("--unit", "GB/s"), "--unit: the option has no effect without --matrix"),
        (
            ("--matrix", str(matrix), "--policy", "uniform_all"),
            "policy uniform_all needs no measured",
        ),
        # It was measured one path at a time.
        (
            ("--matrix", str(matrix), "--policy", "canonical_contended"),
            "has no measurement with all worker nodes",
        ),
    ):
        given = ["place", "--policy", "canonical", "--workers", "0", *arguments, "--", "true"]
        assert words in refusal_by_chaosity(*given)


# Each look takes 0.2 s of a processor, as on a machine with much memory: the next comes after 10 s.
DEAR_LOOKS = """
import sys, time
from chaosity.place import __main__, page_migration, run_placed_program
run_placed_program.LONGEST_INTERVAL_SECONDS = 0.1
cheap = page_migration.find_memory_areas
def dear(*given):
    until = time.thread_time() + 0.2
    while time.thread_time() < until: pass
    return cheap(*given)
page_migration.find_memory_areas = dear
__main__.main()
"""
GROWS = """
import time
first = bytearray(8 << 20)
time.sleep(1)
second = bytearray(8 << 20)
time.sleep(5)
"""


@pytest.mark.thorough
def test_growing_memory_is_looked_at_soon_even_if_looks_are_expensive(kernel, tmp_path):
    path = tmp_path / "report.json"
    given = kernel.arguments("--report", str(path), *python(GROWS))
    done = subprocess.run([sys.executable, "-c", DEAR_LOOKS, *given], timeout=60, check=False)
    assert done.returncode == 0
    assert sum(report(path)["bytes_by_node"].values()) >= 16 << 20


def test_signals_are_passed_on_once(kernel, tmp_path):
    marks = tmp_path / "marks"
    code = (
        "import pathlib, signal, time\n"
        f"mark = open({str(marks)!r}, 'a', buffering=1)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: mark.write('x\\n'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: exit(4))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    run = kernel.start(*python(code))
    assert run.stdout.readline() == "up\n"
    run.send_signal(signal.SIGUSR1)
    wait_until(lambda: marks.read_text())
    assert marks.read_text() == "x\n"
    run.send_signal(signal.SIGTERM)
    assert run.wait(10) == 4


def test_all_started_processes_are_on_the_requested_units(kernel):
    """As the runner looks at a load: this program, its guardian and what it runs."""
    run = kernel.start("--cpus", "1", "--", "sleep", "60")
    seen = wait_until(
        lambda: [s for s in [observed_state.read_process_threads(run.pid)] if len(s) == 3]
    )[0]
    assert {thread["cpus_allowed"] for thread in seen} == {"1"}
    run.terminate()
    run.wait(10)


def test_the_runner_measures_a_program_that_is_placed(kernel):
    """Its threads, its mapping and its samples are the program's own, seen through the placer."""
    program = (sys.executable, IMAGINED, "1", "1", "60", "16")
    command = kernel.command("--cpus", "0", "--report", "placed.json", "--", *program)
    record = measured(placed_point(command, seconds=3), 1)
    assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
    seen = {one["name"]: one["passed"] for one in record["verdict"]["checks"]}
    assert seen["program: threads"] is True
    assert seen["program: pages"] is True
    found = json.loads(record["loads"][0]["outputs"]["placed.json"])
    assert found["placed"] is True
    assert found["bytes_by_node"] == {"0": 16 << 20}

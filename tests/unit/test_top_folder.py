"""What stands at the top of the project beside its folders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from broken_runs import run_program


def test_snakemake_finds_the_rules_and_their_target_from_the_top(
    root: Path, tmp_path: Path
) -> None:
    done = run_program("snakemake", "--rulegraph", "--config", f"results={tmp_path}", folder=root)
    # Without a target, Snakemake would succeed and do nothing.
    assert done.returncode == 0 and 'label = "all"' in done.stdout, done.stdout


def test_git_ignores_all_results_but_their_page(root: Path) -> None:
    paths = ["results/README.md", "results/index.html", "results/demo/nps4/report.html"]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *paths],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == paths[1:]
    assert (root / "results/README.md").is_file()


def test_only_delete_results_deletes_what_was_measured_and_asks_before(
    root: Path, tmp_path: Path
) -> None:
    for name in (".venv", ".snakemake", "build", "results/demo"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "results/README.md").touch()
    shutil.copy(root / "Makefile", tmp_path)

    def left_by(target: str, answer: str = "") -> set[str]:
        make = ["make", target]
        done = subprocess.run(make, cwd=tmp_path, input=answer, capture_output=True, text=True)
        assert (done.returncode == 0) == (answer != "n\n")
        return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}

    kept = {"Makefile", "results", "results/README.md"}
    assert left_by("clean") == {".venv", "results/demo", *kept}
    assert left_by("distclean") == {"results/demo", *kept}
    assert left_by("delete-results", "n\n") == {"results/demo", *kept}
    assert left_by("delete-results", "y\n") == kept

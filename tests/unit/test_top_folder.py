"""What stands at the top of the project beside its folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def test_snakemake_finds_the_rules_and_their_target_from_the_top(
    root: Path, tmp_path: Path
) -> None:
    def said(*options: str) -> str:
        return subprocess.run(
            [BIN / "snakemake", *options],
            cwd=root,
            env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "measure" in said("--list").split()
    assert said("--list") == said("--list", "--snakefile", "workflow/Snakefile")
    # Without a target, Snakemake would succeed and do nothing.
    assert 'label = "all"' in said("--rulegraph", "--config", f"results={tmp_path}")


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

"""What stands at the top of the project beside its folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SNAKEMAKE = Path(sys.executable).with_name("snakemake")


def test_the_snakefile_at_the_top_has_the_rules_of_the_workflow(root: Path) -> None:
    said = [
        subprocess.run(
            [SNAKEMAKE, *snakefile, "--list"], cwd=root, capture_output=True, text=True, check=True
        ).stdout
        for snakefile in ([], ["-s", "Snakefile"], ["-s", "workflow/Snakefile"])
    ]
    assert "measure" in said[0].split()
    assert said == said[:1] * 3


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

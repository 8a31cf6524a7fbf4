"""Write docs/reference from what it describes: commands, types, experiment and benchmark files.

`make docs` runs this file; a test compares the pages with what it would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import (
    BENCHMARKS,
    EXPERIMENTS,
    ROOT,
    load_benchmark,
    load_experiment,
    yaml_file_names,
)

REFERENCE = ROOT / "docs" / "reference"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a line break or a bar within a cell does not end it."""
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    lines = (titles, ["---"] * len(titles), *cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _link(path: Path, text: str) -> str:
    return f"[{text}](../../{path.relative_to(ROOT)})"


def experiments_page() -> str:
    """Return the page of all experiments, with the default ones first."""
    default = read_config()["experiments"]
    others = [name for name in yaml_file_names(EXPERIMENTS) if name not in default]

    def rows(names: Iterable[str]) -> str:
        cells = (
            (_link(EXPERIMENTS / f"{name}.yaml", f"`{name}`"), load_experiment(name)["question"])
            for name in names
        )
        return table(("experiment", "question"), cells)

    return f"""# Experiments

An experiment is a file of `workflow/experiments`. The key `experiments` of the
[config](../../config/config.yaml) selects which ones a run measures.

## Measured by default

{rows(default)}
By default a run takes only some levels of some factors (`levels` in the config), so that the run
stays short. `snakemake --config levels=null` takes all levels. Huge pages of 2 MiB and 1 GiB are
measured if the host has reserved them (`playbooks/configure.yml`). Otherwise the plan says that
huge pages are left out.

## Measured when selected

These experiments are slow, need several nodes, or measure a subset of another experiment. Select
them with `snakemake --config 'experiments=[numa_runtime]'`.

{rows(others)}
- `interference_writes` DESTROYS the data of the drives that the inventory names.
- `program_placement` measures a program of your own.
- Placements with measured weights need the results of a first run. Run
  `snakemake --config 'experiments=[memory_bandwidth,contended_paths,page_placement]'` twice; the
  plan says what the second run adds.
- Without a GPU, PoCL uses the processor as the OpenCL device.
"""


def benchmarks_page() -> str:
    """Return the page of all benchmarks by category."""
    chosen = read_config()["benchmarks"]
    rows = []
    for name in yaml_file_names(BENCHMARKS):
        benchmark = load_benchmark(name)
        categories = (benchmark["category"], *benchmark.get("other_categories", ()))
        listed = ", ".join(f"`{each}`" for each in categories)
        default = "yes" if name in chosen.values() else ""
        link = _link(BENCHMARKS / f"{name}.yaml", f"`{name}`")
        metrics = ", ".join(f"`{metric}`" for metric in benchmark["metrics"])
        rows.append((listed, link, benchmark["summary"], metrics, default))
    titles = ("category", "benchmark", "what it runs", "metrics", "default")
    return f"""# Benchmarks

A benchmark is a file of `templates/benchmarks`: a program, its command lines, and how its output is
read. The key `benchmarks` of the [config](../../config/config.yaml) selects one for each category,
for example `snakemake --config 'benchmarks={{memory_bandwidth: likwid_bench}}'`.

{table(titles, sorted(rows))}"""


PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks_page,
    "experiments.md": experiments_page,
}
NOTE = "<!-- Written by `make docs`; do not edit. -->\n\n"


def written_pages() -> dict[Path, str]:
    """Return path -> text of each page of the reference."""
    return {REFERENCE / name: NOTE + page() for name, page in PAGES.items()}


if __name__ == "__main__":
    for path, text in written_pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

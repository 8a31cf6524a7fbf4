"""The workflow over hosts of the lab, with its results in a folder of its own."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import yaml

from chaosity.records.record_format import Record
from chaosity.store.tidy_table_parquet import read_parquet_table
from workflow_folder import Workflow

INVENTORY = "tests/lab/inventory"
SERVER = "server"  # the paper's: eight nodes, 30 drives
# Every kind of point, as many of each as minutes allow.
EXPERIMENTS = {
    "experiments": ["memory_bandwidth", "storage_sample", "interference"],
    "sample": {"memory_bandwidth": 10, "storage_sample": 40, "interference": 6},
}


def good(record: Record) -> bool:
    """Whether a measurement means what it says."""
    return record["verdict"]["status"] == "valid"


def placed(record: Record) -> bool:
    """Whether the kernel saw every load's threads and pages where they were asked for."""
    seen = {one["name"]: one["passed"] for one in record["verdict"]["checks"]}
    names = [f"{x['name']}: {y}" for x in record["point"]["loads"] for y in ("threads", "pages")]
    return all(seen.get(name) is True for name in names)


class Pipeline(Workflow):
    """The workflow over hosts of the lab, with its results in a folder of its own."""

    def __init__(self, root: Path, folder: Path, *hosts: str) -> None:
        super().__init__(root, folder)
        short = yaml.safe_load((root / "tests/lab/config.yaml").read_text())
        self.config = {
            **short,
            **EXPERIMENTS,
            "inventory": str(root / INVENTORY),
            "hosts": list(hosts),
            "results": "results",
            "replicates": 1,
        }
        self.timeout = 3000
        self.slow: str | None = None  # serial of a drive that is slow

    def run_and_try_again(self, tries: int = 3) -> None:
        """Run, and run again as long as something failed: that is what a next run is for.

        Two cores that emulate eight, and 30 drives at their full speed, may starve the runner so
        that it does not see a load's pages in time.
        """
        for _ in range(tries):
            self.run()
            failed = [record["verdict"] for record in self.all_records() if not good(record)]
            if not failed:
                return
            print(f"{len(failed)} failed: {failed[0]['reason']}")

    def all_records(self) -> list[Record]:
        """The current records of all hosts."""
        return [one for host in self.config["hosts"] for one in self.records(host).values()]

    def summary(self, host: str) -> dict[str, Any]:
        """What the report of a host says in short."""
        summary: dict[str, Any] = json.loads(self.path(f"{host}/*/summary.json").read_text())
        return summary

    def component(self, host: str, serial: str) -> str:
        """The name of the drive that has a serial now."""
        for path in (self.folder / "results" / host).glob("*/components/drive-*.json"):
            if json.loads(path.read_text())["serial"] == serial:
                return path.stem
        raise AssertionError(serial)

    def storage(self, host: str) -> dict[tuple[str, ...], float]:
        """Median bandwidth of storage measured alone, by the serials of the drives."""
        found: dict[tuple[str, ...], list[float]] = {}
        for record in self.records(host).values():
            [*loads] = record["point"]["loads"]
            if len(loads) == 1 and loads[0]["category"] == "storage_bandwidth":
                serials = tuple(sorted(d["serial"] for d in loads[0]["target"]["drives"]))
                if not all(serial.startswith("NV-") for serial in serials):
                    continue  # the system drive has no throttle
                found.setdefault(serials, []).append(self.value(record))
        return {key: statistics.median(values) for key, values in found.items()}

    def value(self, record: Record) -> float:
        point = record["point"]
        table = read_parquet_table(self.path(f"{point['host']}/*/measurements.parquet"))
        rows = table[(table.point == point["point"]) & (table.experiment == point["experiment"])]
        return float(rows[rows.replicate == record["replicate"]].value.iloc[0])

    def with_variables(self, **variables: Any) -> None:
        """Add variables of all hosts to the lab's inventory."""
        inventory = self.folder / INVENTORY  # its paths lead from there to build/lab
        inventory.mkdir(parents=True, exist_ok=True)
        links = {
            inventory / name: self.root / INVENTORY / name for name in ("hosts.yml", "group_vars")
        }
        links[self.folder / "build"] = self.root / "build"
        for link, target in links.items():
            if not link.is_symlink():
                link.symlink_to(target)
        more = yaml.safe_dump({"all": {"vars": variables}})
        (inventory / "more.yml").write_text(more)
        self.config["inventory"] = str(inventory)

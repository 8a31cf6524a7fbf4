"""Measure a host within a budget: rounds of measurements, each an ordinary run of the workflow.

A run that was interrupted continues with the round that is not complete.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
import yaml

from chaosity.anomalies.host_anomalies import host_component_facts
from chaosity.campaign.budgeted_plan import (
    budget_of_config,
    missing_seconds,
    needs_rounds,
)
from chaosity.campaign.runs_of_hosts import HostWorkflow
from chaosity.compare.selections_to_compare import read_selections
from chaosity.components.component_files import read_component_documents
from chaosity.design.host_plan import HostPlan
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import (
    has_text,
    is_measured,
    load_record,
    record_file,
    utc_now_text,
    write_atomically,
)
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.result_folders import UNMEASURED_FILE
from chaosity.rounds.known_before import known_cells
from chaosity.rounds.machine_so_far import MachineSoFar, SecondsOfPoints, rows_left_out
from chaosity.rounds.next_round import describe_round, next_round
from chaosity.rounds.round_types import (
    PointKey,
    Round,
    point_key,
    read_rounds,
    write_rounds,
)
from chaosity.store.measurements import Measurements
from chaosity.store.readings_kept_between_runs import KeptReadings, kept_readings
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table
from chaosity.units import format_duration
from chaosity.yaml_document_types import Config

# Config of the runs that measure the rounds.
_CONFIG_FILE = "rounds_config.yaml"
_DIGEST_FILE = ".unmeasured_digest"


def machine_so_far(
    plan: HostPlan, folder: Path, rounds: Sequence[Round], known: pd.DataFrame | None = None
) -> MachineSoFar:
    """Return what the records in a host's folder tell, for the choice of the next round."""
    facts = host_component_facts(
        plan.host.topology, read_component_documents(folder / "components")
    )
    measured = rows_left_out(())
    if rounds and (folder / "points").exists():
        measured = Measurements.from_table(build_tidy_table(folder / "points", folder))
    seconds: dict[PointKey, list[float]] = {}
    with kept_readings(folder, "seconds") as kept:
        for key, count in MachineSoFar((), plan.host.topology).replicates_of(rounds).items():
            paths = [folder / record_file(*key, number) for number in range(1, count + 1)]
            seconds[key] = [_duration_seconds(path, kept) for path in paths if path.exists()]
    return MachineSoFar(plan.points, plan.host.topology, facts, rounds, measured, seconds, known)


def _duration_seconds(path: Path, kept: KeptReadings) -> float:
    """Return the duration of a measurement in seconds; 0 for a broken record.

    A simulated measurement takes the planned time, though its record is written in milliseconds.
    """

    def read() -> float:
        record = load_record(path)
        if record.get("origin") == SIMULATED:
            return record["point"]["estimated_seconds"]
        began, finished = map(datetime.fromisoformat, (record["began_at"], record["finished_at"]))
        return (finished - began).total_seconds()

    try:
        return float(kept.reading(path, "", read))
    except ValueError:
        return 0.0


def with_other_records(plan: HostPlan, folder: Path, rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds, and as a further round all valid records that no round requested.

    Runs without a budget took these records, before the first round or between rounds.
    """
    planned = MachineSoFar((), plan.host.topology).replicates_of(rounds)
    found: list[PointKey] = []
    for point in plan.points:
        key = point_key(point)
        for replicate in range(1 + planned[key], 1 + len(point["orders"])):
            if not is_measured(folder, point, replicate):
                break
            found.append(key)
    other = Round("records of runs without a budget", tuple(found), earlier=True)
    return [*rounds, other] if found else [*rounds]


def write_unmeasured_rows(plan: HostPlan, folder: Path) -> None:
    """Write the rows of the points that a plan leaves out, if the plan has changed."""
    path, done = folder / UNMEASURED_FILE, folder / _DIGEST_FILE
    if path.exists() and has_text(done, plan.points_fingerprint):
        return  # an unchanged file asks for no new predictions
    write_parquet_table(rows_left_out(plan.left_out).rows[[*COLUMNS]], path)
    done.write_text(plan.points_fingerprint)


def _known_before(plan: HostPlan, texts: Sequence[str]) -> pd.DataFrame | None:
    """Return the cells of the earlier runs that the config names; None without any.

    Raises:
        UserError: an earlier run has another configuration, or other combinations.
    """
    tables = []
    for selection in read_selections(texts):
        others = set(selection.measurements.rows["configuration"]) - {plan.host.configuration}
        if others:
            problem = f"the configuration of earlier runs is {', '.join(sorted(others))}"
            remedy = f"name runs in {plan.host.configuration} in known_from"
            raise UserError(f"{problem}, not {plan.host.configuration}", selection.name, remedy)
        tables.append(selection.measurements)
    if not tables:
        return None
    place = f"host {plan.host.name}"
    keys = {point_key(point) for point in plan.points}
    return known_cells(Measurements.concatenated(tables), keys, place)


class RoundsOfHost:
    """The rounds of one host within a budget.

    Args:
        plan: the complete plan of the host.
        folder: ``results/<host>/<configuration>``.
        config: the config of the run with the budget.
    """

    def __init__(self, plan: HostPlan, folder: Path, config: Config) -> None:
        self.plan, self.folder = plan, folder
        self.budget = budget_of_config(config, plan)
        self.config = config
        self.known = _known_before(plan, config["known_from"])
        # Another run may have completed the plan meanwhile.
        self.in_rounds = needs_rounds(plan, folder, self.budget)

    def choose(self) -> tuple[list[Round], Round | None, MachineSoFar]:
        """Return the rounds so far, the next round or None, and what is known."""
        rounds = with_other_records(self.plan, self.folder, read_rounds(self.folder))
        so_far = machine_so_far(self.plan, self.folder, rounds, self.known)
        return rounds, next_round(so_far, self.budget, self.config["seed"]), so_far

    def describe_next_round(self) -> str:
        """Return what a run would measure next, as a line for the terminal."""
        name, whole = self.plan.host.name, missing_seconds(self.plan, self.folder)
        if not self.in_rounds:
            return f"{name}: the budget is enough for the complete plan of {format_duration(whole)}"
        rounds, chosen, so_far = self.choose()
        return (
            self._state(rounds, chosen, so_far)
            + f" Without a budget, the run would take {format_duration(whole)}."
        )

    def run(self, workflow: HostWorkflow) -> int:
        """Measure round after round, then write the report; return Snakemake's exit status."""
        print(self.describe_next_round(), file=sys.stderr, flush=True)
        if self.in_rounds and workflow.is_dry_run:
            return 0
        began = utc_now_text() if self.in_rounds else None
        own: Mapping[str, object] = {
            **self.config,
            "hosts": [self.plan.host.name],
            "expected_configuration": self.plan.host.configuration,
            **{"budget": None, "precision": None, "known_from": [], "rounds": began},
        }
        file = self.folder / _CONFIG_FILE
        write_atomically(file, yaml.safe_dump(dict(own), sort_keys=False))
        if not self.in_rounds:
            return workflow.run(file, self.config)
        if read_rounds(self.folder) and (status := workflow.run(file, self.config, "measurements")):
            return status
        while True:
            rounds, chosen, so_far = self.choose()
            if chosen is None:
                write_rounds(self.folder, rounds)
                break
            print(self._state(rounds, chosen, so_far), file=sys.stderr, flush=True)
            write_rounds(self.folder, [*rounds, chosen])
            if status := workflow.run(file, self.config, "measurements"):
                return status
        return workflow.run(file, self.config)

    def _state(self, rounds: Sequence[Round], chosen: Round | None, so_far: MachineSoFar) -> str:
        """Return the time used and the next round as a line for the terminal."""
        used = format_duration(so_far.spent_seconds)
        if self.budget.seconds is not None:
            used += f" of {format_duration(self.budget.seconds)}"
        number = 1 + sum(not each.earlier for each in rounds)
        following = "no further round"
        if chosen is not None:
            seconds = SecondsOfPoints(so_far).of(chosen.measurements)
            following = describe_round(number, chosen, seconds)
        known = ""
        if len(so_far.measured):
            measured = len(so_far.replicates_of(rounds))
            known = f" Known so far, from {measured} of {len(self.plan.points)} combinations:"
            # The list of tests is for the report.
            known += f" {so_far.findings.verdict.partition(' Tested with')[0]}"
        return f"{self.plan.host.name}: {used} used; {following}.{known}"

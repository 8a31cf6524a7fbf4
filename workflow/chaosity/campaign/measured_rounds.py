"""Choose what a host measures within a budget, round after round, from the records so far.

After an interruption, the next run continues with the incomplete round.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from chaosity.anomalies.host_anomalies import host_component_facts
from chaosity.compare.selections import read_selections
from chaosity.components import (
    components_changed_since,
    read_component_documents,
    read_component_histories,
)
from chaosity.design.host_plan import HostPlan
from chaosity.documents.config import Config
from chaosity.errors import UserError
from chaosity.records.record_files import (
    current_record_path,
    file_has_text,
    file_time,
    load_record,
    measurement_seconds,
    replicate_numbers,
    time_in_file_name,
)
from chaosity.records.record_format import SIMULATED, VALID, PointKey, point_key
from chaosity.result_folders import UNMEASURED_FILE
from chaosity.rounds.budget import (
    PlannedRounds,
    Round,
    RoundChoice,
    budget_of_config,
    must_choose_rounds,
    read_round_choices,
    replicate_counts,
    rounds_of_choices,
)
from chaosity.rounds.machine_so_far import (
    MachineSoFar,
    SecondsOfPoints,
    cells_of_earlier_runs,
    missing_rows_of_points,
)
from chaosity.rounds.next_round import (
    RecordState,
    Replicate,
    describe_round,
    next_round,
    replicates_of_rounds,
    resume_rounds,
)
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import KeptReadings, build_tidy_table, kept_readings
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, write_parquet_table
from chaosity.units import format_duration

_DIGEST_FILE = ".unmeasured_digest"


def _facts_of_record(path: Path, kept: KeptReadings) -> tuple[float, bool, str | None]:
    """Return duration in seconds, validity and definition; 0, False and None for a broken record.

    The duration of a simulated measurement, which takes milliseconds, is its planned time.
    """

    def read_facts() -> tuple[float, bool, str]:
        record = load_record(path)
        point, is_valid = record["point"], record["verdict"]["status"] == VALID
        if record.get("origin") == SIMULATED:
            return point["estimated_seconds"], is_valid, point["definition"]
        return measurement_seconds(record), is_valid, point["definition"]

    try:
        seconds, is_valid, definition = kept.kept_or_new_reading(path, "", read_facts)
    except ValueError:
        return 0.0, False, None
    return float(seconds), bool(is_valid), str(definition)


def write_unmeasured_rows(plan: HostPlan, folder: Path) -> None:
    """Write `unmeasured.parquet`: the rows of the points that a plan leaves out, without values.

    Nothing is written if the points of the plan have not changed since the file was written.
    """
    path, done = folder / UNMEASURED_FILE, folder / _DIGEST_FILE
    if path.exists() and file_has_text(done, plan.points_fingerprint):
        return  # the file keeps its time stamp, so Snakemake makes no new predictions
    write_parquet_table(missing_rows_of_points(plan.left_out).rows[[*COLUMN_TYPES]], path)
    done.write_text(plan.points_fingerprint)


def _cells_of_earlier_runs(plan: HostPlan, texts: Sequence[str]) -> pd.DataFrame | None:
    """Return the cells of earlier runs that `texts` of the config name; None without earlier runs.

    Raises:
        UserError: an earlier run has another configuration, or too many other combinations.
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
    return cells_of_earlier_runs(Measurements.concatenated(tables), keys, place)


class RoundChooser:
    """Chooses the rounds of one host within a budget.

    `plan` is the complete plan of the host, and `folder` is ``results/<host>/<configuration>``.
    `discovery_folder` is the same folder or, in a dry run, the folder for the files of discovery.
    `writes` says whether facts that were read from records may be kept in `folder`.
    """

    def __init__(
        self,
        plan: HostPlan,
        folder: Path,
        config: Config,
        discovery_folder: Path | None = None,
        *,
        writes: bool = True,
    ) -> None:
        self.plan, self.folder, self.config, self.writes = plan, folder, config, writes
        self.components = (discovery_folder or folder) / "components"
        self.choices = read_round_choices(folder)
        self.budget = budget_of_config(config, plan)
        self.earlier_cells = _cells_of_earlier_runs(plan, config["known_from"])
        rounds = rounds_of_choices(self.choices)
        self._states = self._record_states(rounds)
        planned = {point_key(point): point["estimated_seconds"] for point in plan.points}
        counting = {each for each, state in self._states.items() if state.is_usable}
        own = [each for each in rounds if not each.earlier]
        self.missing_seconds = sum(
            planned[point_key(point)]
            for point in plan.points
            for number in replicate_numbers(point)
            if (point_key(point), number) not in counting
        )
        # If a run without a budget has measured the complete plan meanwhile, no rounds are needed.
        self.in_rounds = must_choose_rounds(
            plan,
            self.budget,
            used_seconds=sum(
                planned[each[0]] for _, each in replicates_of_rounds(own) if each in counting
            ),
            missing_seconds=self.missing_seconds,
            is_new=not counting,
        )
        self.resumed = resume_rounds(
            plan.points, plan.host.topology, self.budget, rounds, self._states
        )

    def choose_first(self) -> tuple[PlannedRounds | None, str]:
        """Return the rounds with which a run begins, and a text for the terminal, possibly empty.

        If measurements of earlier rounds are missing, the run makes them first, and no round is
        chosen yet. If the budget is enough for the complete plan, no rounds are returned.
        """
        name, whole = self.plan.host.name, format_duration(self.missing_seconds)
        if not self.in_rounds:
            text = f"{name}: the budget is enough for all missing measurements, {whole}"
            return None, text if self.missing_seconds else ""
        first = self.resumed.first_measurements_text
        choice, text = self.choose_next(self.resumed.rounds, first)
        text += f"{self.resumed.note_on_left_out} Without a budget, the run would take {whole}."
        chosen = (*self.resumed.rounds, *(() if first else choice.rounds))
        kept = [each for each in self.choices if not each.is_last]
        continues = chosen == tuple(rounds_of_choices(kept))
        choices = kept if continues else [RoundChoice(chosen, is_last=False)]
        return PlannedRounds(self.plan, self.folder, choices, continues), text

    def choose_next(
        self, rounds: Sequence[Round], first: str | None = None
    ) -> tuple[RoundChoice, str]:
        """Return the next choice after these rounds, and a text for the terminal.

        The text says how much time is used, and then contains `first` or, without `first`,
        describes the chosen round.
        """
        known = self._with_unrequested_records(rounds)
        so_far = self._machine_so_far(known)
        chosen = next_round(so_far, self.budget, self.config["seed"])
        used = format_duration(so_far.spent_seconds)
        if self.budget.seconds is not None:
            used += f" of {format_duration(self.budget.seconds)}"
        following = first or "no further round"
        if chosen is not None and not first:
            number = 1 + sum(not each.earlier for each in known)
            expected = SecondsOfPoints(so_far.points, so_far.record_seconds)
            following = describe_round(number, chosen, expected.total_of(chosen.measurements))
        text = f"{self.plan.host.name}: {used} used; {following}."
        if len(so_far.measured):
            measured = len(replicate_counts(known))
            text += f" Known so far, from {measured} of {len(self.plan.points)} combinations:"
            # The text for the terminal leaves out the list of tests, which only the report has.
            text += f" {so_far.findings.verdict.partition(' Tested with')[0]}"
        added = (*known[len(rounds) :], *([chosen] if chosen else []))
        return RoundChoice(added, chosen is None), text

    def _record_states(self, rounds: Sequence[Round]) -> dict[Replicate, RecordState]:
        """Return (point, replicate) -> state of its record, for each record in the folder."""
        histories = read_component_histories(self.components)
        asked = replicate_counts(rounds)
        found = {}
        with kept_readings(self.folder, "rounds", writes=self.writes) as kept:
            for point in self.plan.points:
                key = point_key(point)
                for number in range(1, 1 + max(asked[key], len(point["orders"]))):
                    path = self.folder / current_record_path(*key, number)
                    if not path.exists():
                        continue
                    seconds, is_valid, definition = _facts_of_record(path, kept)
                    written = time_in_file_name(file_time(path))
                    is_outdated = definition not in (None, point["definition"]) or bool(
                        components_changed_since(written, point["components"], histories)
                    )
                    found[key, number] = RecordState(seconds, is_valid, is_outdated)
        return found

    def _with_unrequested_records(self, rounds: Sequence[Round]) -> list[Round]:
        """Return the rounds, and one more round with all usable records that are in no round."""
        # Records that are in no round are from runs without a budget, before the first round or
        # between rounds.
        planned, states = replicate_counts(rounds), self._states
        found: list[PointKey] = []
        for point in self.plan.points:
            key = point_key(point)
            for replicate in range(1 + planned[key], 1 + len(point["orders"])):
                if (key, replicate) not in states or not states[key, replicate].is_usable:
                    break
                found.append(key)
        other = Round("records of runs without a budget", tuple(found), earlier=True)
        return [*rounds, other] if found else [*rounds]

    def _machine_so_far(self, rounds: Sequence[Round]) -> MachineSoFar:
        """Return the facts about the machine that the records of some rounds give."""
        points, topology, states = self.plan.points, self.plan.host.topology, self._states
        facts = host_component_facts(topology, read_component_documents(self.components))
        measured = missing_rows_of_points(())
        if rounds and (self.folder / "points").exists():
            rows = build_tidy_table(self.folder / "points", self.folder, writes=self.writes)
            outdated = [(*key, number) for (key, number), one in states.items() if one.is_outdated]
            places = pd.MultiIndex.from_frame(rows[["experiment", "point", "replicate"]])
            measured = Measurements.from_table(rows[~places.isin(outdated)])
        seconds = {
            key: [
                states[key, number].seconds
                for number in range(1, count + 1)
                if (key, number) in states and not states[key, number].is_outdated
            ]
            for key, count in replicate_counts(rounds).items()
        }
        return MachineSoFar(points, topology, facts, rounds, measured, seconds, self.earlier_cells)

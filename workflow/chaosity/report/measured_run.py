"""Read the results of a host in one configuration, for its report."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
from chaosity.components import (
    Components,
    ComponentState,
    facts_of_system_component,
    read_component_documents,
    read_component_histories,
)
from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import DEFAULT_CONFIG_FILE, load_experiment
from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError, malformed_as_user_error
from chaosity.figures.figure_files import FigureEntry, draw_checks_over_time, draw_figures
from chaosity.health.check_history import SERIES_FILE, read_check_history
from chaosity.records.record_files import load_record, measurement_seconds, read_regular_file
from chaosity.records.record_format import NOTHING_MEASURED, VALID, Check, Load, LoadClock, Record
from chaosity.result_folders import read_skipped_host
from chaosity.statistics.anova import AnovaResult, AnovaStudy, analyse_all_studies
from chaosity.statistics.cell_summary import with_variance_priors
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.store.measurements import LeftOutPoints, Measurements
from chaosity.store.tidy_table_from_records import (
    HISTORY_COLUMNS,
    build_tidy_table,
    note_on_records_without_digest,
    split_measurements_at_component_changes,
)
from chaosity.store.tidy_table_parquet import read_parquet_table
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.topology.topology_parts import HostFacts
from chaosity.units import format_count

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class RecordSummary:
    """The parts of a record that the report shows; a record is a measurement of a replicate."""

    # experiment, point: names of experiment and point in the tidy table.
    experiment: str
    point: str
    replicate: int  # number of the replicate
    status: str  # valid or failed
    # began_at, finished_at: start and end of the measurement in UTC (ISO 8601).
    began_at: str
    finished_at: str
    measurement_seconds: float  # see `chaosity.records.record_files.measurement_seconds`
    # Name of a load -> the command line of this load.
    commands: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()  # the checks of the verdict
    programs: Mapping[str, str] = field(default_factory=dict)  # name of each program -> its version
    # (name of a note, target) -> message of the tool, or None if the tool wrote no message.
    tool_notes: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    # The clock of each load, or why it is unknown; empty for records of earlier versions.
    clocks: tuple[LoadClock, ...] = ()


def read_record_summaries(paths: Iterable[Path]) -> list[RecordSummary]:
    """Return the summaries of records, sorted by their paths.

    Damaged or incomplete files are left out, since the tidy table reports them.
    """
    summaries = []
    for path in sorted(paths):
        with suppress(*ERRORS_OF_MALFORMED_DOCUMENTS):
            summaries.append(_summarise_record(load_record(path)))
    return summaries


def _summarise_record(record: Record) -> RecordSummary:
    point, verdict = record["point"], record["verdict"]
    started = {load["name"]: load for load in record["loads"]}
    loads: dict[str, Load] = {load["name"]: load for load in point["loads"]} | started
    return RecordSummary(
        experiment=point["experiment"],
        point=point["point"],
        replicate=record["replicate"],
        status=verdict["status"],
        began_at=record["began_at"],
        finished_at=record["finished_at"],
        measurement_seconds=measurement_seconds(record),
        commands={name: shlex.join(load["command"]) for name, load in loads.items()},
        checks=tuple(verdict["checks"]),
        programs={
            load["program"]["name"]: load["program"]["version"] or "version unknown"
            for load in started.values()
            if "program" in load
        },
        clocks=tuple(load["clock"] for load in record["loads"] if "clock" in load),
        tool_notes=dict(_tool_notes(record["loads"], verdict["checks"])),
    )


def _tool_notes(
    loads: Iterable[Load], checks: Iterable[Check]
) -> Iterator[tuple[tuple[str, str], str | None]]:
    """Yield ((note, target), message) for each note of each load; the message can be None."""
    by_name = {check["name"]: check for check in checks}
    for load in loads:
        for note in load.get("notes", ()):
            if check := by_name.get(f"{load['name']}: {note['name']}"):
                message = None if check["passed"] else check["detail"]
                yield (note["name"], load["target"]["name"]), message


def unmet_note_sentences(summaries: Sequence[RecordSummary]) -> Iterator[str]:
    """Yield a sentence for each message of a tool in valid records, with the number of records."""
    messages = Counter(
        item
        for summary in summaries
        if summary.status == VALID
        for item in summary.tool_notes.items()
    )
    for (key, message), number in messages.items():
        if message is not None:
            total = sum(times for (other, _), times in messages.items() if other == key)
            runs = format_count(total, "run")
            yield f"{', '.join(key)}: not met in {number} of {runs}: {message}"


def _read_json(path: Path, parse: Callable[[Any], Parsed], what: str) -> Parsed:
    """Return `parse` applied to the content of a JSON file; an error says it is not `what`."""
    with malformed_as_user_error(f"the file is not {what}", str(path)):
        return parse(json.loads(read_regular_file(path)))


def read_findings(path: Path) -> Findings:
    """Return the findings in a file ``findings.json``.

    Raises:
        UserError: the file is not an output of ``chaosity anomalies --json``.
    """
    return _read_json(path, Findings.from_json, "an output of `chaosity anomalies --json`")


@dataclass
class Run:
    """The results of a host in one configuration; a part is read or computed at its first use.

    If the file of a table or of the findings is None, its content is computed from the records.
    """

    plan_file: Path  # the file `plan.json` of the results
    output: Path  # the HTML file of the report; links are relative to its folder
    table_file: Path | None = None  # the tidy table
    history_file: Path | None = None  # the table of values before changes of components
    findings_file: Path | None = None  # output of `chaosity anomalies --json`
    drawing_file: Path | None = None  # lstopo's drawing of the topology as SVG
    other_tables: tuple[Path, ...] = ()  # tidy tables of the host's other configurations
    config_file: Path = DEFAULT_CONFIG_FILE  # the workflow's config

    @property
    def folder(self) -> Path:
        """Return the folder of the results."""
        return self.plan_file.parent

    @cached_property
    def plan(self) -> Mapping[str, Any]:
        """The content of `plan.json`: experiments, config and notes."""

        def with_list_of_experiments(document: Mapping[str, Any]) -> Mapping[str, Any]:
            return {**document, "experiments": [*document["experiments"]]}

        return _read_json(self.plan_file, with_list_of_experiments, "the plan.json of a host")

    @cached_property
    def experiments(self) -> Sequence[Mapping[str, Any]]:
        """The YAML documents of the plan's experiments."""
        return [load_experiment(name) for name in self.plan["experiments"]]

    @cached_property
    def config_with_plan_and_notes(self) -> Mapping[str, Any]:
        """The config of the workflow, with values and notes of the plan, and a note on records."""
        note = note_on_records_without_digest(self.folder)
        notes = [*self.plan.get("notes", []), *filter(None, [note])]
        return {**read_yaml(self.config_file), **self.plan.get("config", {}), "notes": notes}

    @cached_property
    def measurements(self) -> Measurements:
        """The tidy table, with a variance prior for each cell."""
        if self.table_file:
            return with_variance_priors(Measurements.read(self.table_file))
        rows = build_tidy_table(self.folder / "points", self.folder)
        return with_variance_priors(Measurements.from_table(rows))

    @cached_property
    def history(self) -> Measurements:
        """The values before and after changes of components, in periods."""
        points, components = self.folder / "points", self.folder / "components"
        return Measurements.from_table(
            read_parquet_table(self.history_file, HISTORY_COLUMNS)
            if self.history_file
            else split_measurements_at_component_changes(points, self.folder, components)
        )

    @cached_property
    def component_histories(self) -> Mapping[str, list[ComponentState]]:
        """Component -> states of the component, the earliest first."""
        return read_component_histories(self.folder / "components")

    @cached_property
    def tables_of_other_configurations(self) -> dict[Path, Measurements]:
        """The tidy tables of the host's other configurations."""
        return {path: with_variance_priors(Measurements.read(path)) for path in self.other_tables}

    @cached_property
    def components(self) -> Components:
        """The components of the host."""
        return read_component_documents(self.folder / "components")

    @cached_property
    def system_facts(self) -> HostFacts:
        """The facts of the system component."""
        return facts_of_system_component(self.components)

    @cached_property
    def topology(self) -> Topology:
        """The topology of the host; empty if it is unknown."""
        return read_topology(self.folder / "topology.json") or Topology()

    @cached_property
    def findings(self) -> Findings:
        """The findings from `findings.json`, or else from an analysis of the tidy table."""
        if self.findings_file:
            return read_findings(self.findings_file)
        return analyse_host(self.measurements, host_component_facts(self.topology, self.components))

    @cached_property
    def variance_analyses(self) -> list[tuple[AnovaStudy, AnovaResult]]:
        """All analyses of variance of the experiments, each with its study."""
        confidences = {
            each["experiment"]: each.get("confidence", CONFIDENCE) for each in self.experiments
        }
        return [*analyse_all_studies(self.measurements, confidences)]

    @cached_property
    def record_summaries(self) -> list[RecordSummary]:
        """Summaries of the records of all points that the current plan has."""
        files = self.folder.glob("points/*/*.json")
        names = [path.relative_to(self.folder / "points").with_suffix("") for path in files]
        records = (path for name in names for path in self.folder.glob(f"{name}/rep*.json"))
        return read_record_summaries(records)

    @cached_property
    def left_out(self) -> LeftOutPoints | None:
        """The points that a budget left out, and their predictions; None without a budget."""
        return LeftOutPoints.read(self.folder)

    @property
    def figures_folder(self) -> Path:
        """Return the folder of the figures' files."""
        return self.output.parent / "figures"

    @cached_property
    def figures(self) -> list[FigureEntry]:
        """The figures of all experiments, whose files are written at the first use."""
        return draw_figures(
            self.experiments, self.measurements, self.topology, self.figures_folder, self.left_out
        )

    @cached_property
    def checks_figure(self) -> FigureEntry | None:
        """The figure of the host's nightly checks; None without checks."""
        if not (self.folder / SERIES_FILE).exists():
            return None
        place = f"{self.folder.parent.name}, {self.folder.name}"
        try:
            history = read_check_history(self.folder)
            return draw_checks_over_time(history, place, self.figures_folder)
        except UserError as error:
            text = str(error)
            return FigureEntry("checks_over_time", "", "lines", "Checks", text, text, None)

    @property
    def host(self) -> str:
        """Return the name of the host."""
        return self._single_name_in_column("host")

    @property
    def configuration_name(self) -> str:
        """Return the name of the configuration."""
        return self._single_name_in_column("configuration")

    def _single_name_in_column(self, column: str) -> str:
        rows = self.measurements.rows
        return str(rows[column].iloc[0]) if len(rows) else f"unknown {column}"

    @property
    def is_simulated(self) -> bool:
        """Return whether the values are simulated."""
        return self.measurements.is_simulated

    @property
    def measuring_time_text(self) -> str:
        """Return when the host was measured: "measured 2026-11-21 09:15 to 10:02 UTC"."""
        if self.is_simulated:
            return NOTHING_MEASURED
        stamps = self.measurements.rows["measured_at"]
        moments = sorted(moment for moment in stamps if isinstance(moment, str))
        if not moments:
            return "not measured yet"
        first, last = (moment[:16].replace("T", " ") for moment in (moments[0], moments[-1]))
        if first[:10] == last[:10]:
            last = last[11:]
        span = first if first.endswith(last) else f"{first} to {last}"
        return f"measured {span} UTC"

    @cached_property
    def skip_reason(self) -> str | None:
        """When and why the last run skipped the host, as text; None if the host was not skipped."""
        skipped = read_skipped_host(self.folder.parent)
        return skipped.skip_time_and_reason if skipped else None

    @cached_property
    def coverage_text(self) -> str | None:
        """A text on how many points a budget left out; None without a budget."""
        left_out = self.left_out
        return None if left_out is None else left_out.coverage_text(self.measurements)

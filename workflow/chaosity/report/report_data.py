"""Everything that the report's template shows, as plain values.

The dataclasses hold text and numbers only, so `dataclasses.asdict` of a report is JSON. Tests read
the content without HTML, and the template decides on appearance alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaosity import __version__
from chaosity.report.component_change_effects import ComponentChange
from chaosity.report.configuration_comparison import ConfigurationsSection
from chaosity.report.experiment_section import ExperimentSection, FigureSection
from chaosity.report.machine_facts import Fact, FactGroup, NodeRow
from chaosity.report.resource_table import ResourceRow
from chaosity.report.result_checks import ResultCheck
from chaosity.report.shown_findings import ShownFinding

CITATION = (
    "H. Nicholson, A. Nica, A. Raza, V. Sanca and A. Ailamaki. "
    "Chaosity: Understanding Contemporary NUMA-architectures."
)


@dataclass(frozen=True)
class FailedPoint:
    """A failed point: reason, command lines, and the command that measures it again."""

    experiment: str
    point: str
    replicates: str
    reason: str
    commands: tuple[Fact, ...]
    repeat: str


@dataclass(frozen=True)
class ReportData:
    """The whole report, in reading order.

    Optional parts: `skipped` says when and why the last run skipped the host, `configurations`
    compares its other configurations, `changes` has values before and after changes.
    """

    host: str
    configuration: str
    measured: str
    machine: tuple[Fact, ...]
    findings: tuple[ShownFinding, ...]
    problems: tuple[ResultCheck, ...]
    passed: tuple[ResultCheck, ...]
    resources: tuple[ResourceRow, ...]
    methodology: tuple[Fact, ...]
    experiments: tuple[ExperimentSection, ...]
    drawing: str | None
    drawing_pixels: int
    nodes: tuple[NodeRow, ...]
    failed: tuple[FailedPoint, ...]
    failed_omitted: int
    host_state: tuple[FactGroup, ...]
    programs: tuple[Fact, ...]
    files: tuple[Fact, ...]
    skipped: str | None = None
    configurations: ConfigurationsSection | None = None
    configuration_figures: tuple[FigureSection, ...] = ()
    changes: tuple[ComponentChange, ...] = ()
    changes_omitted: int = 0
    findings_omitted: int = 0
    citation: str = CITATION
    version: str = __version__

"""Everything that the report's template shows, as plain values.

The dataclasses hold text and numbers only, so `dataclasses.asdict` of a context is JSON: what is
said can be tested without looking at HTML, and the template decides nothing but looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaosity import __version__
from chaosity.figures import TextTable
from chaosity.report.before_after import Change
from chaosity.report.configurations import ConfigurationsSection
from chaosity.report.machine_facts import Fact, FactGroup, NodeRow
from chaosity.report.resource_table import ResourceRow
from chaosity.report.result_checks import ResultCheck
from chaosity.report.variance_section import AnalysisSection

CITATION = (
    "H. Nicholson, A. Nica, A. Raza, V. Sanca and A. Ailamaki. "
    "Chaosity: Understanding Contemporary NUMA-architectures."
)


@dataclass(frozen=True)
class Finding:
    """Something that the analysis found to be wrong with the machine.

    Attributes:
        title: what, in one line.
        text: how large, how sure, compared with what.
        advice: what to look at.
        figure: name of the figure that shows it, or None.
    """

    title: str
    text: str
    advice: str | None = None
    figure: str | None = None


@dataclass(frozen=True)
class Table:
    """A figure's values; `omitted` is their number where they are too many for the page."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted: int = 0


@dataclass(frozen=True)
class FigureSection:
    """A figure with what is said below it; links are relative to the report.

    `svg` is None for a figure that consists of `tables`; other figures have these below.
    """

    name: str
    title: str
    sentence: str
    notes: tuple[str, ...]
    failed: tuple[str, ...]
    svg: str | None
    width_pixels: int
    links: tuple[Fact, ...]
    table: Table | None
    tables: tuple[TextTable, ...] = ()
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExperimentSection:
    """An experiment with its figures, titles of those without points, and those with an error.

    `analysis` says what explains the differences between its values, `unmeasured` which metrics
    have no value, and why, `noted` what tools said of runs that are valid.
    """

    name: str
    question: str
    source: str | None
    figures: tuple[FigureSection, ...]
    without_points: tuple[str, ...]
    broken: tuple[Fact, ...]
    analysis: tuple[AnalysisSection, ...] = ()
    unmeasured: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()


@dataclass(frozen=True)
class FailedPoint:
    """A failed point: why, what ran, and how to measure it again."""

    experiment: str
    point: str
    replicates: str
    reason: str
    commands: tuple[Fact, ...]
    repeat: str


@dataclass(frozen=True)
class ReportData:
    """The whole report, in the order in which it is read.

    Of what not every report has: `left_out` says when and why the last run left the host out,
    `beside` has its other configurations, `changes` what changed on it.
    """

    host: str
    configuration: str
    measured: str
    machine: tuple[Fact, ...]
    findings: tuple[Finding, ...]
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
    environment: tuple[FactGroup, ...]
    programs: tuple[Fact, ...]
    files: tuple[Fact, ...]
    skipped: str | None = None
    configurations: ConfigurationsSection | None = None
    configuration_figures: tuple[FigureSection, ...] = ()
    changes: tuple[Change, ...] = ()
    changes_omitted: int = 0
    findings_omitted: int = 0
    citation: str = CITATION
    version: str = __version__

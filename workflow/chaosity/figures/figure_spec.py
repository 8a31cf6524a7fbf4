"""Read the description of a figure in an experiment's YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from chaosity.documents.figures import Bound, LevelsToCompare
from chaosity.errors import UserError
from chaosity.statistics.estimates_and_ratios import CONFIDENCE

# A value in `where`; None selects rows without a value.
Level = str | float | bool | None
Where = Mapping[str, Level | list[Level]]
# Axes of a figure. A figure with a measured x has no axis "x".
Role = Literal["panels", "series", "rows", "columns", "x"]


@dataclass(frozen=True)
class FigureSpec:
    """A figure of an experiment; `documents.figures` explains its keys."""

    experiment: str
    name: str
    kind: str
    title: str
    load: tuple[str, ...]
    metric: str
    where: Where = field(default_factory=dict)
    rows: str | None = None
    columns: str | None = None
    x: str | None = None
    series: str | None = None
    in_every_series: tuple[str, ...] = ()
    panels: str | None = None
    combine: str | None = None
    cell_note: str | None = None
    x_scale: str = "linear"
    value_scale: str = "linear"
    compare: LevelsToCompare | None = None
    cache_steps: bool = False
    mark_best: bool = False
    loss_to: str | None = None
    bounds: tuple[Bound, ...] = ()
    sum: bool = False
    rows_title: str | None = None
    columns_title: str | None = None
    x_title: str | None = None
    series_title: str | None = None
    panels_title: str | None = None
    value_title: str | None = None
    colour_scale: str | None = None
    source: str | None = None
    template: str | None = None
    by_configuration: bool = False
    confidence: float = CONFIDENCE

    @property
    def has_measured_x(self) -> bool:
        """Whether `x` is a measured quantity and not an axis of named values."""
        return self.kind in ("curve", "scatter")

    @property
    def name_in_errors(self) -> str:
        """Return the name of the figure in errors."""
        return f"experiment {self.experiment}, figure {self.name}"

    def column_of_axis(self, role: Role) -> str | None:
        """Return the column that an axis shows; None if the figure does not have the axis."""
        if role == "x" and self.has_measured_x:
            return None
        column: str | None = getattr(self, role)
        return column

    @classmethod
    def from_yaml_entry(cls, experiment: str, entry: Mapping[str, Any]) -> FigureSpec:
        """Return an entry of `figures` of a checked document."""
        load = entry["load"]
        loads = (load,) if isinstance(load, str) else tuple(load)
        tuples = {name: tuple(entry.get(name, ())) for name in ("in_every_series", "bounds")}
        return cls(experiment, **{**entry, "load": loads, **tuples})


def parse_figure_specs(experiments: Iterable[Mapping[str, Any]]) -> list[FigureSpec]:
    """Return all figures of the experiments' YAML documents, in their order.

    Raises:
        UserError: an entry is wrong, or two figures have the same name and so the same file.
    """
    specs: list[FigureSpec] = []
    owners: dict[str, str] = {}
    for document in experiments:
        for entry in document.get("figures") or ():
            spec = FigureSpec.from_yaml_entry(document["experiment"], entry)
            spec = replace(spec, confidence=document.get("confidence", CONFIDENCE))
            if spec.name in owners:
                raise UserError(
                    f"experiment {owners[spec.name]} already has a figure of this name",
                    spec.name_in_errors,
                    "give each figure a unique name: its files have this name",
                )
            owners[spec.name] = spec.experiment
            specs.append(spec)
    return specs

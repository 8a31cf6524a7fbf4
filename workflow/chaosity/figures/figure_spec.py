"""What an experiment's YAML says about one figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaosity.config import validate_document
from chaosity.errors import UserError


@dataclass(frozen=True)
class FigureSpec:
    """One entry of `figures:`; the keys are described in `schemas/figure.schema.yaml`."""

    experiment: str
    name: str
    kind: str
    title: str
    load: tuple[str, ...]
    metric: str
    where: Mapping[str, Any] = field(default_factory=dict)
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
    compare: Mapping[str, str] | None = None
    loss_to: str | None = None
    bounds: tuple[Mapping[str, Any], ...] = ()
    rows_title: str | None = None
    columns_title: str | None = None
    x_title: str | None = None
    series_title: str | None = None
    panels_title: str | None = None
    value_title: str | None = None
    colour_scale: str | None = None
    source: str | None = None

    @property
    def plotted(self) -> bool:
        """Whether `x` is a quantity with a position of its own and no axis of places."""
        return self.kind in ("curve", "scatter")

    @property
    def where_from(self) -> str:
        """How an error names this figure."""
        return f"experiment {self.experiment}, figure {self.name}"

    @classmethod
    def of(cls, experiment: str, entry: Mapping[str, Any]) -> FigureSpec:
        """Read one entry.

        Raises:
            UserError: a key is unknown, missing, or not for this kind of figure.
        """
        validate_document(
            dict(entry), "figure", f"experiment {experiment}, figure {entry.get('name')}"
        )
        load = entry["load"]
        loads = (load,) if isinstance(load, str) else tuple(load)
        shared = tuple(entry.get("in_every_series", ()))
        bounds = tuple(entry.get("bounds", ()))
        given = {**entry, "load": loads, "in_every_series": shared, "bounds": bounds}
        return cls(experiment, **given)


def read_figure_specs(experiments: Iterable[Mapping[str, Any]]) -> list[FigureSpec]:
    """All figures of the experiments' YAML documents, in their order.

    Raises:
        UserError: an entry is wrong, or two figures have one name and so one file.
    """
    specs: list[FigureSpec] = []
    owners: dict[str, str] = {}
    for document in experiments:
        for entry in document.get("figures") or ():
            spec = FigureSpec.of(document["experiment"], entry)
            if spec.name in owners:
                raise UserError(
                    f"experiment {owners[spec.name]} has a figure of this name too",
                    spec.where_from,
                    "figures need names of their own, for each names its files",
                )
            owners[spec.name] = spec.experiment
            specs.append(spec)
    return specs

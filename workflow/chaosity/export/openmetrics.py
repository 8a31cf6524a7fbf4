"""Write gauges for Prometheus: the main matrices of a map, and the results of checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, Info, write_to_textfile
from prometheus_client.openmetrics.exposition import generate_latest

from chaosity.errors import UserError, file_system_error
from chaosity.export.main_matrices import MainMatrix, MeasuredHost, read_main_matrices

# Ends of names of our metrics -> unit of OpenMetrics and its size in our unit.
_UNITS = {"_bytes_per_second": ("bytes_per_second", 1.0), "_ns": ("seconds", 1e9)}
# Field of an estimate, part of the gauge's name, and its help text.
_GAUGES = (
    ("median", "", "median"),
    ("low", "_low", "lower end of the 95 % interval"),
    ("high", "_high", "upper end of the 95 % interval"),
)
# Name, help text, labels and value of a gauge; None means no value.
GaugeValue = tuple[str, str, Mapping[str, str], float | None]


def export_openmetrics(host: MeasuredHost) -> str:
    """Return a gauge of each matrix, and gauges of both ends of the intervals.

    The label `origin` is measured or simulated. The info `chaosity_map` has the command.

    Raises:
        UserError: no value was measured.
    """
    matrices = read_main_matrices(host)
    if not matrices:
        raise UserError("no value of the main matrices was measured", str(host.folder))
    registry, origin = CollectorRegistry(), host.origin("openmetrics")
    info = Info("chaosity_map", "Origin of the values of this host's map.", registry=registry)
    info.info({key: str(value) for key, value in origin.items()})
    whole = {key: str(origin[key]) for key in ("host", "configuration", "origin")}
    for matrix in matrices.values():
        unit, size = next(unit for suffix, unit in _UNITS.items() if matrix.metric.endswith(suffix))
        _add_gauges(registry, "chaosity_map", _gauges(matrix, whole, unit, size), unit)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call] # has no types
    return text.decode()


def _gauges(
    matrix: MainMatrix, whole: Mapping[str, str], unit: str, size: float
) -> Iterator[GaugeValue]:
    for field, part, meaning in _GAUGES:
        name = f"{matrix.quantity.replace(' ', '_')}{part}_{unit}"
        what = f"{matrix.quantity.capitalize()} of {matrix.source}: {meaning}."
        for cell in matrix.cells:
            value = getattr(cell.estimate, field)
            place = {**whole, "initiator": cell.initiator, "target": cell.target}
            yield name, what, place, None if value is None else value / size


def _add_gauges(
    registry: CollectorRegistry, prefix: str, values: Iterable[GaugeValue], unit: str = ""
) -> None:
    """Add a gauge for each name, also without values, and its values."""
    gauges: dict[str, Gauge] = {}
    for name, text, labels, value in values:
        if name not in gauges:
            gauges[name] = Gauge(f"{prefix}_{name}", text, [*labels], registry=registry, unit=unit)
        if value is not None:
            gauges[name].labels(**labels).set(value)


def write_gauges(prefix: str, values: Iterable[GaugeValue], path: Path) -> None:
    """Write gauges for node_exporter's textfile collector, whole or not at all.

    The file must end in .prom.

    Raises:
        UserError: the file cannot be written.
    """
    registry = CollectorRegistry()
    _add_gauges(registry, prefix, values)
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise (file_system_error(error, path) or error) from None

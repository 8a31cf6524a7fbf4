"""Write the main matrices of a map as OpenMetrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.openmetrics.exposition import generate_latest

from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import origin_of_export, read_main_matrices

_PLACE = ("host", "configuration", "origin", "initiator", "target")
# Ends of names of our metrics -> unit of OpenMetrics and its size in our unit.
_UNITS = {"_bytes_per_second": ("bytes_per_second", 1.0), "_ns": ("seconds", 1e9)}
# Field of an estimate, part of the gauge's name, and its help text.
_GAUGES = (
    ("median", "", "median"),
    ("low", "_low", "lower end of the 95 % interval"),
    ("high", "_high", "upper end of the 95 % interval"),
)


def export_openmetrics(host: MeasuredHost) -> str:
    """Return a gauge of each matrix, and gauges of both ends of the intervals.

    The label `origin` is measured or simulated. The info `chaosity_map` has the command.

    Raises:
        UserError: no value was measured.
    """
    matrices = read_main_matrices(host)
    if not matrices:
        raise UserError("no value of the main matrices was measured", str(host.folder))
    registry = CollectorRegistry()
    origin = origin_of_export(host, "openmetrics")
    info = Info("chaosity_map", "Origin of the values of this host's map.", registry=registry)
    info.info({key: str(value) for key, value in origin.items()})
    for matrix in matrices.values():
        unit, size = next(unit for suffix, unit in _UNITS.items() if matrix.metric.endswith(suffix))
        name = f"chaosity_map_{matrix.quantity.replace(' ', '_')}"
        what = f"{matrix.quantity.capitalize()} of {matrix.source}"
        for field, part, meaning in _GAUGES:
            gauge = Gauge(
                f"{name}{part}_{unit}", f"{what}: {meaning}.", _PLACE, registry=registry, unit=unit
            )
            for cell in matrix.cells:
                value = getattr(cell.estimate, field)
                if value is not None:
                    place = (*(str(origin[key]) for key in _PLACE[:3]), cell.initiator, cell.target)
                    gauge.labels(*place).set(value / size)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call] # has no types
    return text.decode()

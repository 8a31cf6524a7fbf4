"""Export of measurements: for hwloc's programs, the kernel's interleaving, and schedulers."""

from chaosity.export.hwloc_attributes import HwlocExport, export_hwloc
from chaosity.export.measured_host import (
    MeasuredHost,
    NodeMeasurements,
    read_measured_host,
    select_node_bandwidths,
    select_node_measurements,
)
from chaosity.export.scheduler_document import placement_document
from chaosity.export.weights_document import WeightsExport, export_weights

__all__ = [
    "HwlocExport",
    "MeasuredHost",
    "NodeMeasurements",
    "WeightsExport",
    "export_hwloc",
    "export_weights",
    "placement_document",
    "read_measured_host",
    "select_node_bandwidths",
    "select_node_measurements",
]

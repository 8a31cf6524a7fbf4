"""Export of measurements: for hwloc's programs, the kernel's interleaving, and schedulers."""

from chaosity.export.exported_measurements import (
    MeasuredHost,
    NodeMeasurements,
    read_measured_host,
    select_node_bandwidths,
    select_node_measurements,
)
from chaosity.export.hwloc_memory_attributes import HwlocExport, export_hwloc
from chaosity.export.interleave_weights_document import WeightsExport, interleave_weights_of_host
from chaosity.export.placement_document import placement_document

__all__ = [
    "HwlocExport",
    "MeasuredHost",
    "NodeMeasurements",
    "WeightsExport",
    "export_hwloc",
    "interleave_weights_of_host",
    "placement_document",
    "read_measured_host",
    "select_node_bandwidths",
    "select_node_measurements",
]

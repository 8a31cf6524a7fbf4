"""Handing measurements on: to hwloc's programs, to the kernel's interleaving, to schedulers."""

from chaosity.export.hwloc import HwlocExport, hwloc_export
from chaosity.export.measured import Host, bandwidth_cells, node_cells, read_host
from chaosity.export.placement import placement_document
from chaosity.export.weights import WeightsExport, weights_export

__all__ = [
    "Host",
    "HwlocExport",
    "WeightsExport",
    "bandwidth_cells",
    "hwloc_export",
    "node_cells",
    "placement_document",
    "read_host",
    "weights_export",
]

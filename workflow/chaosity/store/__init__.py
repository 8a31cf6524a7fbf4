"""From records to the tidy table: one row a point, replicate, load and metric, in SI units."""

from chaosity.store.measurement_history import HISTORY_COLUMNS, history
from chaosity.store.measurements import Measurements, node_matrices
from chaosity.store.node_matrix import NodeMatrix, read_distances, read_matrix
from chaosity.store.published_data import read_published
from chaosity.store.result_folders import (
    modification_times,
    other_configuration_tables,
    several_configurations,
    skipped_hosts,
    summary_files,
)
from chaosity.store.tidy_table import COLUMNS, read_table, tidy, valid, write_table
from chaosity.transport.skipped_hosts import SkippedHost, read_skipped_host

__all__ = [
    "COLUMNS",
    "HISTORY_COLUMNS",
    "Measurements",
    "NodeMatrix",
    "SkippedHost",
    "history",
    "modification_times",
    "node_matrices",
    "other_configuration_tables",
    "read_distances",
    "read_matrix",
    "read_published",
    "read_skipped_host",
    "read_table",
    "several_configurations",
    "skipped_hosts",
    "summary_files",
    "tidy",
    "valid",
    "write_table",
]

"""The tidy table: one row for each point, replicate, load and metric, in SI units."""

from chaosity.store.measurement_history import HISTORY_COLUMNS, build_history
from chaosity.store.measurements import Measurements
from chaosity.store.node_matrix import NodeMatrix, read_distances, read_matrix
from chaosity.store.published_csv_tables import read_published
from chaosity.store.tidy_table import COLUMNS, build_tidy_table, read_table, write_table
from chaosity.transport.skipped_hosts import SkippedHost, read_skipped_host

__all__ = [
    "COLUMNS",
    "HISTORY_COLUMNS",
    "Measurements",
    "NodeMatrix",
    "SkippedHost",
    "build_history",
    "build_tidy_table",
    "read_distances",
    "read_matrix",
    "read_published",
    "read_skipped_host",
    "read_table",
    "write_table",
]

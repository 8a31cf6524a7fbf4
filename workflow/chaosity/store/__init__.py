"""From records to the tidy table: one row a point, replicate, load and metric, in SI units."""

from chaosity.store.history import HISTORY_COLUMNS, history
from chaosity.store.matrices import Matrix, node_matrices, read_distances, read_matrix
from chaosity.store.places import (
    LeftOut,
    changed_at,
    left_out_hosts,
    read_left_out,
    several_places,
    summaries,
    tables_beside,
)
from chaosity.store.published import read_published
from chaosity.store.tidy import COLUMNS, read_table, tidy, valid, write_table

__all__ = [
    "COLUMNS",
    "HISTORY_COLUMNS",
    "LeftOut",
    "Matrix",
    "changed_at",
    "history",
    "left_out_hosts",
    "node_matrices",
    "read_distances",
    "read_left_out",
    "read_matrix",
    "read_published",
    "read_table",
    "several_places",
    "summaries",
    "tables_beside",
    "tidy",
    "valid",
    "write_table",
]

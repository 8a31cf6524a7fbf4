"""From records to the tidy table: one row a point, replicate, load and metric, in SI units."""

from chaosity.store.tidy import COLUMNS, read_table, tidy, write_table

__all__ = ["COLUMNS", "read_table", "tidy", "write_table"]

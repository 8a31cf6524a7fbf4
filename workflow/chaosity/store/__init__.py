"""The tidy table: one row for each point, replicate, load and metric, in SI units."""

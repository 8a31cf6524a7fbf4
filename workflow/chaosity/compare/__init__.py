"""Comparison of two selections of the tidy table, and outlier hosts among equal hosts."""

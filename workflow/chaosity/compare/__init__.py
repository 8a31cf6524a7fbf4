"""Compare two selections of the tidy table, and find outlier hosts among equal hosts."""

"""Makes `synthetic` importable for the tests below this folder."""

"""Makes `report_inputs` importable for the tests below this folder."""

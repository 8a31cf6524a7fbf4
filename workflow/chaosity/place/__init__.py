"""Place the pages of a running program, check the placement, and search for the best placement.

This Python package is copied to hosts with the runner and uses the standard library alone.
"""

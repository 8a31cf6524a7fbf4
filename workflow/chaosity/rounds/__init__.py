"""Decide what a run with a budget measures next."""

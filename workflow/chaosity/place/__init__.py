"""Puts the pages of any running program where they should be, verifies it, searches the best place.

It is copied to hosts together with the runner and uses the standard library alone.
"""

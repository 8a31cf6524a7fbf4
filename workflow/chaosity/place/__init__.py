"""Place the pages of any running program, check the placement, and search for the best one.

This room is copied to hosts together with the runner and uses the standard library alone.
"""

"""Places the pages of any running program, checks the placement, and searches for the best one.

It is copied to hosts together with the runner and uses the standard library alone.
"""

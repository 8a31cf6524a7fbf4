"""The runner: takes a point as JSON, measures it on this host, answers with a record as JSON.

It is copied to hosts as one zipapp and uses the standard library alone.
"""

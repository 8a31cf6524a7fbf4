"""The runner: measures a point (JSON) on this host and answers with a record (JSON).

The runner is copied to hosts as one zipapp and uses the standard library alone.
"""

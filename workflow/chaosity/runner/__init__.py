"""The runner reads a point (JSON), measures it on this host, and writes a record (JSON).

The runner is copied to hosts as one zipapp and uses the standard library alone.
"""

"""Components: the parts of a host whose change makes measurements obsolete.

Each component has a file.
"""

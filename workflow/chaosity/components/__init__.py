"""Components: the parts of a host whose change makes measurements obsolete. Each has a file."""

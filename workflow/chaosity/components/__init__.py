"""Components: the parts of a host whose change makes measurements obsolete, a file for each."""

"""The YAML documents that people write: their types, checks, and errors of one sentence each."""

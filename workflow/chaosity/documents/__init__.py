"""The YAML documents that people write: their types, their checks, and errors of one sentence."""

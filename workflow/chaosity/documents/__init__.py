"""The YAML documents that people write: types with limits, checks, and errors in one sentence."""

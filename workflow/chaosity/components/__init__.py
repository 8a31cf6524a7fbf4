"""Components: the parts of a host whose change makes measured numbers stale, one file each."""

from chaosity.components.documents import (
    SYSTEM,
    component_documents,
    drive_component,
    gpu_component,
    node_component,
    package_component,
    system_document,
)
from chaosity.components.files import read_components, write_components
from chaosity.components.history import State, read_history

__all__ = [
    "SYSTEM",
    "State",
    "component_documents",
    "drive_component",
    "gpu_component",
    "node_component",
    "package_component",
    "read_components",
    "read_history",
    "system_document",
    "write_components",
]

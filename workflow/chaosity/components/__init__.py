"""Components: the parts of a host whose change makes measured numbers stale, one file each."""

from chaosity.components.component_documents import (
    SYSTEM,
    component_documents,
    drive_component_name,
    gpu_component_name,
    node_component,
    package_component,
    system_document,
)
from chaosity.components.component_files import read_components, write_components
from chaosity.components.component_history import ComponentState, read_history

__all__ = [
    "SYSTEM",
    "ComponentState",
    "component_documents",
    "drive_component_name",
    "gpu_component_name",
    "node_component",
    "package_component",
    "read_components",
    "read_history",
    "system_document",
    "write_components",
]

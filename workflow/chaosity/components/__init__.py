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
from chaosity.components.files import write_components

__all__ = [
    "SYSTEM",
    "component_documents",
    "drive_component",
    "gpu_component",
    "node_component",
    "package_component",
    "system_document",
    "write_components",
]

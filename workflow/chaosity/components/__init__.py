"""Components: the parts of a host whose change makes measurements obsolete, a file for each."""

from chaosity.components.component_documents import (
    SYSTEM,
    ComponentDocument,
    Components,
    DriveDocument,
    GpuDocument,
    NodeDocument,
    OpenclDocument,
    PackageDocument,
    SystemDocument,
    drive_component_name,
    gpu_component_name,
    make_component_documents,
    make_system_document,
)
from chaosity.components.component_files import (
    read_components,
    system_component_facts,
    write_components,
)
from chaosity.components.component_history import ComponentState, read_component_histories

__all__ = [
    "SYSTEM",
    "ComponentDocument",
    "ComponentState",
    "Components",
    "DriveDocument",
    "GpuDocument",
    "NodeDocument",
    "OpenclDocument",
    "PackageDocument",
    "SystemDocument",
    "drive_component_name",
    "gpu_component_name",
    "make_component_documents",
    "make_system_document",
    "read_component_histories",
    "read_components",
    "system_component_facts",
    "write_components",
]

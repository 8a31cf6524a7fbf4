"""What is wrong with a machine, how sure that is, which component is suspected, what to look at."""

from chaosity.anomalies.anomaly_model import CONTENTION, KINDS, Anomaly, CellGroup, Findings
from chaosity.anomalies.host_analysis import (
    HostParts,
    analyse_host,
    host_parts,
    relative_loss,
)
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.anomalies.node_matrix import analyse_matrix

__all__ = [
    "CONTENTION",
    "KINDS",
    "Anomaly",
    "CellGroup",
    "Findings",
    "HostParts",
    "PackageNodes",
    "analyse_host",
    "analyse_matrix",
    "host_parts",
    "relative_loss",
]

"""Anomalies of a machine: what is wrong, how sure it is, which component is suspected."""

from chaosity.anomalies.anomaly_results import CONTENTION, KINDS, Anomaly, CellGroup, Findings
from chaosity.anomalies.host_anomalies import HostParts, analyse_host, host_parts
from chaosity.anomalies.matrix_anomalies import analyse_matrix
from chaosity.anomalies.matrix_structure import PackageNodes

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
]

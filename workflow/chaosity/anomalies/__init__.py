"""What is wrong with a machine, how sure that is, which component is suspected, what to look at."""

from chaosity.anomalies.model import CONTENTION, KINDS, Anomaly, CellClass, Findings
from chaosity.anomalies.nodes import analyse_matrix
from chaosity.anomalies.structure import Packages
from chaosity.anomalies.table import Machine, analyse_table, machine_of, severity

__all__ = [
    "CONTENTION",
    "KINDS",
    "Anomaly",
    "CellClass",
    "Findings",
    "Machine",
    "Packages",
    "analyse_matrix",
    "analyse_table",
    "machine_of",
    "severity",
]

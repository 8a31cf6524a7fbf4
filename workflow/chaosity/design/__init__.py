"""From experiments in YAML and a topology to points: what to measure, in which order."""

from chaosity.design.naming import parse_point_name
from chaosity.design.plan import Host, Plan, plan_host, replicates_of
from chaosity.design.policies import Weights

__all__ = [
    "Host",
    "Plan",
    "Weights",
    "parse_point_name",
    "plan_host",
    "replicates_of",
]

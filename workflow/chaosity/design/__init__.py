"""From experiments in YAML and a topology to points: what to measure, and in which order."""

from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host, replicate_numbers
from chaosity.design.point_names import parse_point_name
from chaosity.design.target_selectors import WeightsLookup

__all__ = [
    "HostPlan",
    "PlannedHost",
    "WeightsLookup",
    "parse_point_name",
    "plan_host",
    "replicate_numbers",
]

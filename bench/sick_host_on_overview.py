"""How well the page of all hosts shows one sick host of a fleet: recall and false alarms.

Hosts are as in `nightly_check_recall.py`: servers with eight nodes and 30 drives (EPYC 7413, NPS4).
Each host has a map, and hosts differ by 0.7 % in each pair of initiator and target. The sick host
had already lost a share of a node or of a drive when its map was measured. "Reported" means that
the page calls the sick host an outlier host. "Named" means that one of the host's marked resources
is the faulty part.
"""

from __future__ import annotations

from collections.abc import Iterator

from scipy import stats

from chaosity.compare.outlier_hosts import find_outlier_hosts
from chaosity.report.overview import HostsByResources
from machines import server
from nightly_check_recall import FAULTS
from nightly_checks import check_points
from simulated_fleet import fleet_tables

SICK = 4
LOSSES = (0.03, 0.05, 0.10)


def outlier_hosts(
    hosts: int, fleet: int, part: str | None, loss: float
) -> tuple[set[str], set[str]]:
    """Return the outlier hosts of a fleet, and the marked places of the sick host."""
    faults = {SICK: [FAULTS[part](1.0 - loss)]} if part else {}
    tables = fleet_tables(server(), hosts, faults, fleet=fleet)
    found = find_outlier_hosts(tables, packages=server().topology.package_of_node)
    names = {verdict.host for verdict in found.hosts if verdict.differs}
    sick = f"server{SICK:03}"
    places = HostsByResources.of_hosts(found).deviating_resources(sick) if sick in names else []
    return names, {f"{each.group}, {each.place}" for each, _ in places}


def compare(fleets: int) -> Iterator[str]:
    """Yield the rows of a table: fleets of 16 hosts, with one sick host or none."""
    sick, false = f"server{SICK:03}", 0
    for part in FAULTS:
        for loss in LOSSES:
            reported = named = 0
            for fleet in range(fleets):
                names, places = outlier_hosts(16, fleet, part, loss)
                reported += sick in names
                named += any(place_of(part) in place for place in places)
                false += len(names - {sick})
            counts = f"{reported} of {fleets} | {named} of {reported}"
            yield f"| {part}, {100 * loss:.0f} % less | {counts} |"
    healthy = sum(len(outlier_hosts(16, 500 + n, None, 0.0)[0]) for n in range(2 * fleets))
    number = 16 * 2 * fleets
    most = stats.binomtest(healthy, number).proportion_ci(method="exact").high
    yield f"healthy fleets: {healthy} of {number} hosts called outliers (95 %: at most {most:.3f})"
    yield f"fleets with a sick host: {false} healthy hosts called outliers"


def place_of(part: str) -> str:
    """Return what the page calls a part: its name, or the node of a drive."""
    check = next(each for each in check_points() if each.parts[0] == part)
    return f"node{check.load['target']['nodes'][0]}"


PARTS = {"sick_host_on_overview": compare}

"""Compare measured memory bandwidth and latency of nodes with values normal for the processor.

Hosts of one model can all be slow, for example if all have half of their memory modules. So their
median is compared with published values, and with the profiles of other hosts in the profile
database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chaosity.documents.reference_data import ProcessorsDocument
from chaosity.documents.shipped_documents import PROCESSORS_FOLDER, read_document, yaml_file_names
from chaosity.store.csv_tables import BANDWIDTH, LATENCY
from chaosity.store.measurements import WORKING_SET, Measurements, less_is_better, parse_levels_json
from chaosity.store.profile_database import find_profiles, read_profile_measurements
from chaosity.topology.topology_model import Topology

# Metric -> category of the loads that measure it.
_CATEGORY_OF_METRIC = {metric: f"memory_{metric.split('_')[0]}" for metric in (BANDWIDTH, LATENCY)}
# Metric -> largest loss that is not reported, as a share. Results of different benchmark programs
# differ by some per cent, and latency also depends on the size of pages.
_MOST_UNREPORTED_LOSS = {BANDWIDTH: 0.15, LATENCY: 0.25}


@dataclass(frozen=True)
class ValueComparedWithNormal:
    """A measured value of nodes' local memory, and the value that is normal for the processor."""

    metric: str  # BANDWIDTH or LATENCY
    value: float  # median over the nodes, in the metric's unit
    kernel: str | None  # kernel of the value; None for latency
    normal: float  # value that is normal for the processor, in the metric's unit
    source: str  # origin of the normal value

    @property
    def loss(self) -> float:
        """Return how much worse than normal the value is, as a share; negative if it is better."""
        ratio = self.value / self.normal
        return ratio - 1.0 if less_is_better(self.metric) else 1.0 - ratio

    @property
    def is_clearly_worse(self) -> bool:
        """Return whether the value is worse than normal by more than benchmark programs differ.

        Different benchmark programs differ by up to 15 % in bandwidth and 25 % in latency.
        """
        return self.loss > _MOST_UNREPORTED_LOSS[self.metric]


def own_memory_value_by_kernel(measurements: Measurements, metric: str) -> dict[str | None, float]:
    """Return kernel -> median over the nodes of the value of local memory.

    Of several local initiators of a node, the one with the best median counts. Latency has no
    kernel, so its key is None. Co-running loads do not count. Loads with a given working set do not
    count either, since a given working set may fit into a cache.
    """
    alone = measurements.single_load_rows() if len(measurements) else measurements
    rows = alone.valid_rows().rows
    sizes = rows["load_parameters"].map(lambda text: WORKING_SET in parse_levels_json(text))
    own = (rows["relation"] == "same_node") & (rows["target_kind"] == "node") & ~sizes
    rows = rows[
        own & (rows["metric"] == metric) & (rows["category"] == _CATEGORY_OF_METRIC[metric])
    ]
    cells = rows.groupby(["kernel", "experiment", "initiator", "target"], dropna=False)["value"]
    nodes = cells.median().groupby(["kernel", "target"], dropna=False)
    best = nodes.min() if less_is_better(metric) else nodes.max()
    medians = best.groupby("kernel", dropna=False).median().items()
    return {kernel if isinstance(kernel, str) else None: float(each) for kernel, each in medians}


def compare_with_published_values(
    hosts: Iterable[Measurements], model: str | None, topology: Topology | None
) -> list[ValueComparedWithNormal]:
    """Return each published value of a processor together with the median that `hosts` measured.

    `model` is the processor model that the kernel reports. Published values count only if they were
    measured with as many nodes per package as `topology` has.
    """
    if not model or topology is None or not topology.packages:
        return []
    per_package = len(topology.packages[0].nodes)
    tables, found = list(hosts), list[ValueComparedWithNormal]()
    for name in yaml_file_names(PROCESSORS_FOLDER):
        document = read_document(
            PROCESSORS_FOLDER, name, ProcessorsDocument, str(PROCESSORS_FOLDER)
        )
        source = f"{document['method']}; {document['source']}; {document['url']}"
        for entry in document["values"]:
            # The model "Gold 6140" must not match the processor "Gold 6140M".
            is_model = re.search(rf"{re.escape(entry['model'])}(?!\w)", model)
            if is_model and entry["nodes_per_package"] == per_package:
                normal = {
                    metric: entry[metric] for metric in _CATEGORY_OF_METRIC if metric in entry
                }
                found += _compare_with_normal(tables, normal, document.get("kernel"), source)
    return found


def compare_with_other_profiles(
    measurements: Measurements, model: str, configuration: str, host: str, database: Path
) -> list[ValueComparedWithNormal]:
    """Return each value of a host together with the median of other hosts' profiles in a database.

    Only profiles with the given processor model and configuration count; profiles of `host` do not.
    """
    profiles = find_profiles(database, cpu=model, configuration=configuration)
    others = [
        Measurements.from_table(read_profile_measurements(database, profile["id"]))
        for profile in profiles
        if profile["host"] != host
    ]
    found = list[ValueComparedWithNormal]()
    for metric in _CATEGORY_OF_METRIC:
        known = [own_memory_value_by_kernel(table, metric) for table in others]
        for kernel, value in own_memory_value_by_kernel(measurements, metric).items():
            normal = [values[kernel] for values in known if kernel in values]
            if normal:
                source = f"median of {len(normal)} other profiles in {database.name}"
                found.append(ValueComparedWithNormal(metric, value, kernel, median(normal), source))
    return found


def _compare_with_normal(
    tables: Iterable[Measurements], normal: Mapping[str, float], kernel: str | None, source: str
) -> Iterator[ValueComparedWithNormal]:
    for metric, value in normal.items():
        known = [
            own for own in (own_memory_value_by_kernel(each, metric) for each in tables) if own
        ]
        if not known:
            continue
        # If no host measured the published kernel, the fairest comparison is with the best kernel
        # that all hosts measured.
        common = set.intersection(*(set(own) for own in known))
        medians = {name: median(own[name] for own in known) for name in common}
        if medians:
            best = kernel if kernel in medians else max(medians, key=lambda name: medians[name])
            yield ValueComparedWithNormal(metric, medians[best], best, value, source)

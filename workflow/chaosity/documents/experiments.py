"""The types of an experiment file: loads, their places, factors of points, and figures."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
    NO_DUPLICATES,
    Count,
    EndpointReference,
    Name,
    OneOrSeveral,
    Positive,
    Text,
    Texts,
    Value,
    key_requires_other_key,
    needs_exactly_one_key_of,
)
from chaosity.documents.figures import AnyFigure

CoreGroup = Literal["l3_domain", "node", "package", "machine"]
AnyGroup = Literal["core", "l3_domain", "core_kind", "node", "package", "machine"]
NodeOrPackage = Literal["node", "package"]


class InitiatorSelector(TypedDict, total=False):
    """Selects initiators. Keys such as `same_as` refer to an endpoint such as LOAD.initiator."""

    each: Literal["pu"] | AnyGroup
    """One initiator for each part of this kind of the host, such as each core.

    On a host without an L3 cache, `l3_domain` means the cores that share the largest cache. If all
    cores of the host are equal, `core_kind` means all cores.
    """
    each_set_of: Literal["node"]
    """One initiator for each set of nodes that have processing units, with sets of every size."""
    in_each_set_of: Literal["node"]
    """With `each: node`, `together: true`: a point for each set of nodes, a load for each node."""
    at_most_sets: Count
    """The largest number of sets.

    If there are more sets, an evenly spread sample is taken, with at least one set of every size.
    """
    first_pu_of: AnyGroup
    """The first processing unit of each part of this kind, such as of each node."""
    without: EndpointReference
    """With `each` and `one_of_each_relation_to`: leave out the cores of this earlier initiator."""
    at_least: Annotated[int, Ge(2)]
    """The smallest number of groups, such as 2 L3 domains.

    On a host with fewer groups, some evenly spread cores of each node are taken instead: 4 of each
    node, or fewer on hosts with many nodes, at most 16 in all.
    """
    at_most: Count
    """The largest number of groups; if there are more groups, evenly spread ones are taken."""
    growing: Literal["node", "package", "machine"]
    """Of each selected group: 1, 2, ... cores, up to all cores of the group.

    Cores are taken in two ways: packed (one L3 domain after the other), and spread over L3 domains.
    """
    first_half_of: CoreGroup
    """The first half of each group's cores; `others_of` with `within` is the second half."""
    others_of: EndpointReference
    """Cores near the named initiator that this initiator does not use."""
    within: OneOrSeveral[CoreGroup]
    """Kind of group from which `others_of` takes cores; the group with most cores is used."""
    first_pu: Literal[True]
    """With `others_of`: only the first processing unit of the selected cores."""
    names: Texts
    """Initiators by name, such as node0, l3_0 or pu17.

    Core kinds are called efficiency_cores and performance_cores, or kind0, kind1, ... if there are
    more than two or if the faster kind is unknown.
    """
    same_as: EndpointReference
    """The initiator of another load of the point."""
    local_to: EndpointReference
    """The cores of the nodes with the memory or the drives of this target.

    If a node with memory has no cores, the cores of the nearest node are taken.
    """
    one_of_each_relation_to: EndpointReference
    """One node for each relation to this endpoint.

    The relations are: the same node, another node of the package, a node of another package.
    """
    by: Literal["l3_domain"]
    """With `one_of_each_relation_to`: cores instead of nodes are selected.

    For cores, another core of the same L3 domain is also a relation.
    """
    threads: Literal["one_per_core", "all"]
    """One thread on each core, or one on each SMT sibling; default: as the config says.

    If a load has initiators of both kinds, the factor `smt` has both as levels. The plan of a host
    without SMT leaves out a design with both levels.
    """


class OpenclSelector(TypedDict, total=False):
    """Selects OpenCL devices as targets; `chaosity topology` lists these devices.

    A host without OpenCL devices has no points of the design, and the plan says so. With PoCL, the
    processor is also an OpenCL device, which uses the processing units of the initiator.
    """

    each: Literal["device"]
    """Every OpenCL device."""
    names: Texts
    """Devices by name, such as opencl0."""
    none: Literal[True]
    """Also a point without this load, as the baseline for comparisons."""


class DriveSelector(TypedDict, total=False):
    """Selects drives and drive sets as targets."""

    each: Literal["drive"]
    """Every drive alone."""
    first_of: NodeOrPackage
    """The first drive of each node or package, then its first two drives, ... up to all its drives.

    Drives of a package are taken from its nodes in turn.
    """
    all_of: NodeOrPackage
    """All drives of each node or package together."""
    all_of_each_set_of: Literal["node"]
    """All drives of each set of nodes together."""
    all: Literal[True]
    """All drives of the host together."""
    names: Texts
    """Drives by name."""
    at_most_sets: Count
    """The largest number of targets of `each`, `all_of` or `all_of_each_set_of` (even sample)."""
    local: Literal[True]
    """Only drives of the initiator's own nodes."""
    one_of_each_relation: Literal[True]
    """For each relation to the initiator: only the first node or package with drives."""
    writable: Literal[True]
    """Only drives that the inventory lists in `chaosity_destructive_drives`.

    A load of the category `storage_write` needs this key.
    """
    none: Literal[True]
    """Also a point without this load, as the baseline for comparisons."""


class TargetSelector(TypedDict, total=False):
    """Selects targets: memory nodes, placements of pages, drives or devices."""

    each: Literal["node"]
    """Every memory node alone."""
    each_other: Literal["package"]
    """For each package without cores of the initiator, all memory of the package as one target."""
    all: Literal["node"]
    """All memory nodes as one target."""
    spread_over: Literal["package"]
    """The memory nearest to the initiator's packages, with equal shares of the pages on its nodes.

    Each kind of memory (DRAM, HBM, CXL) is a target.
    """
    policies: Texts
    """Placements of pages over nodes.

    The placements are first_touch, uniform_workers, uniform_all, autonuma, canonical,
    canonical_contended, bwap and bwap_uniform; chaosity/place/page_placement.py explains each.
    """
    weights_from: dict[str, str]
    """Name of weights, such as canonical -> experiment whose results give these weights.

    Before the host has results of this experiment, the plan leaves out placements with these
    weights and says so. The next run adds the placements.
    """
    nearest: Literal[True]
    """With `each`: only memory nodes to which no other initiator is nearer than this initiator."""
    none: Literal[True]
    """Also a point without this load, as the baseline for comparisons."""
    local_to: EndpointReference
    """The memory nodes of this initiator or, if it has none, the nearest memory nodes."""
    one_of_each_relation_to: EndpointReference
    """One memory node for each relation to this endpoint."""
    same_as: EndpointReference
    """The target of another load of the point."""
    names: Texts
    """Memory nodes by name, such as node3."""
    opencl: Annotated[OpenclSelector, MinLen(1)]
    """OpenCL devices."""
    drives: Annotated[DriveSelector, MinLen(1)]
    """Drives and drive sets."""


class BufferSelector(TypedDict, total=False):
    """Selects the memory into which drives are read, by exactly one key."""

    each: Literal["node"]
    """Every memory node."""
    local_to: EndpointReference
    """The memory nodes of this endpoint."""
    names: Texts
    """Memory nodes by name."""
    one_of_each_relation_to: EndpointReference
    """One memory node for each relation to this endpoint."""


class CacheOrMemoryMultiple(TypedDict):
    """A working set as a multiple of a cache or of the usable share of the target node."""

    times: Positive
    """Factor of the size."""
    of: Literal["l1", "l2", "l3", "node"]
    """The cache of one core at this level, or the usable share of the target node."""


def _bytes_or_multiple(value: object) -> str:
    return "multiple" if isinstance(value, dict) else "bytes"


WorkingSet = Annotated[
    Annotated[int, Ge(1024), Tag("bytes")] | Annotated[CacheOrMemoryMultiple, Tag("multiple")],
    Discriminator(_bytes_or_multiple),
]
WorkingSetRange = TypedDict(
    "WorkingSetRange",
    {
        "from": Annotated[WorkingSet, Field(description="The smallest size.")],
        "to": Annotated[WorkingSet, Field(description="The largest size.")],
        "per_doubling": NotRequired[
            Annotated[int, Ge(1), Le(16), Field(description="Sizes per doubling (default: 1).")]
        ],
    },
)


def _list_or_range(value: object) -> str:
    return "list" if isinstance(value, list) else "range"


# Working sets as a list, or as a range with even steps from a smallest to a largest size.
WorkingSets = Annotated[
    Annotated[list[WorkingSet], MinLen(1), Tag("list")] | Annotated[WorkingSetRange, Tag("range")],
    Discriminator(_list_or_range),
]
Levels = Annotated[list[Annotated[str, Field(pattern="^[A-Za-z0-9_,]+$")] | int], MinLen(1)]
Initiators = OneOrSeveral[Annotated[InitiatorSelector, MinLen(1)]]
Buffers = OneOrSeveral[Annotated[BufferSelector, MinLen(1), MaxLen(1)]]


class LoadDesign(TypedDict):
    """A load of a design: its category, its selectors, and the levels that it varies."""

    category: str
    """Category of the benchmark; the config says which benchmark measures it."""
    kernel: NotRequired[Annotated[list[str], MinLen(1)]]
    """Names in `kernels` of the benchmark; each name is a level."""
    together: NotRequired[Literal[True, "single_initiator_allowed"]]
    """One load for each initiator, and all these loads run at the same time.

    If the host has a single initiator, no point is made, unless the value is
    single_initiator_allowed.
    """
    responder: NotRequired[Initiators]
    """The second core of a core-to-core transfer, which always differs from the initiator."""
    sizes: NotRequired[WorkingSets]
    """Working sets; each working set is a level."""
    vary: NotRequired[Annotated[dict[Name, Levels], MinLen(1)]]
    """Parameter of the benchmark -> its levels, as in pages: [thp, base, 2M].

    Each parameter is a factor and part of the point's name. The plan leaves out points with huge
    pages that are not reserved and points with sizes that do not fit, and says so in a note.
    """
    initiator: Initiators
    """Which processing units issue the accesses."""
    target: OneOrSeveral[Annotated[TargetSelector, MinLen(1)]]
    """What the load accesses."""
    buffers: NotRequired[Buffers]
    """Memory into which drives are read; each is a level. Default: the initiator's own nodes.

    The command of the benchmark must use `target.page_nodes`.
    """


class LoadDesignsByRole(TypedDict):
    """The loads of a design, which run at the same time, by their roles."""

    loads: Annotated[dict[Name, LoadDesign], MinLen(1)]
    """Name of a role, such as memory or storage -> the load with this role."""


class FactorLevelRule(TypedDict, total=False):
    """The rule that gives a point its level of a factor: one key; with `relation`, also `by`.

    An endpoint is LOAD.initiator, LOAD.target and so on. LOAD may be `only`, which means the only
    load of a point, whatever its name is. So loads of several designs can have the same factor.
    """

    design: Literal[True]
    """The level is the name of the point's design."""
    relation: Annotated[list[EndpointReference], Field(min_length=2, max_length=2)]
    """Two endpoints: the level says where the second endpoint is, seen from the first endpoint.

    Levels are, for example, same node, same package and other package.
    """
    by: Literal["package", "l3_domain"]
    """`package`: levels are same, other or both packages; `l3_domain`: also a shared L3 domain."""
    count: EndpointReference
    """LOAD.target: the level is the number of drives of this target."""
    level: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.(initiator|target|buffers|kernel)$")]
    """The level is the name of LOAD.initiator, LOAD.target, LOAD.buffers or LOAD.kernel."""
    mode: str
    """Role of a load: the level is serial, or concurrent if several loads with this role run."""


class RelativeMetric(TypedDict):
    """A metric that is computed from `metric` of `load`.

    The value of `metric` is divided by the same metric of a reference point, or by the rate in
    `per`. The reference is from the same replicate, has the levels in `to`, and has the same values
    of everything that `same` lists.
    """

    name: Name
    """Name of the metric, without a unit."""
    load: str
    """Role of the load."""
    metric: str
    """Metric of this load from which the new metric is computed."""
    to: NotRequired[Annotated[dict[str, str | int], MinLen(1)]]
    """Factor, level or column of the load -> its value in the reference.

    The analysis of variance leaves references out. A figure hides them with
    `where: {reference: false}`.
    """
    same: NotRequired[Annotated[list[Text], MinLen(1), NO_DUPLICATES]]
    """Factors, levels or columns that are equal for the load and its reference."""
    of_means: NotRequired[Literal[True]]
    """One ratio of the mean times of all replicates, instead of one ratio for each replicate.

    The time is the reciprocal of a rate, or the metric itself if the metric is a time.
    """
    per: NotRequired[str]
    """A rate of the same load, such as runs_per_second.

    The metric is the count of a processor counter, which grows with the measured time. The count is
    divided by the work that the load did at this rate while the counter ran.
    """


class DeclaredResource(TypedDict):
    """Rows of the report's first table, "What can this machine do?", for loads that ran alone.

    Each row of this table has the best and the worst place. The page of all hosts and the
    comparison of configurations show these rows, too.
    """

    name: Text
    """Name of the rows, such as Memory bandwidth; no other resource may have this name."""
    load: str
    """Role of the load."""
    metric: str
    """Metric that is shown."""
    where: NotRequired[Annotated[dict[Name, OneOrSeveral[Value]], MinLen(1)]]
    """Column, factor or level -> value, or list of values, of the rows that are shown.

    The remaining loads may differ only in their places, since the places are compared. So the loads
    must have the same kernel, the same queue depth and so on.
    """
    levels: NotRequired[Literal["initiator_kind", "target_kind", "relation"]]
    """The column whose values become rows, from small to large or from near to far.

    Default: one row with all places.
    """


class ExperimentDocument(TypedDict):
    """A file of workflow/experiments."""

    experiment: Name
    """Name of the file, without .yaml."""
    title: NotRequired[Text]
    """Heading in the report, in a few words; default: the name of the experiment in words."""
    question: str
    """The question that the experiment answers; the report and the list of experiments show it."""
    source: str
    """Section or figure of the published study that the experiment follows."""
    replicates: NotRequired[Annotated[int, Ge(1), Le(1000)]]
    """Smallest number of replicates; if the config has a smaller number, this number is used."""
    confidence: NotRequired[Annotated[float, Ge(0.5), Le(0.999)]]
    """Confidence of intervals and tests, also of the analysis of variance; default: 0.95."""
    designs: Annotated[dict[str, LoadDesignsByRole], MinLen(1)]
    """Name of a design (a part of the experiment) -> its loads, which run at the same time."""
    factors: NotRequired[
        dict[
            str,
            Annotated[
                FactorLevelRule,
                needs_exactly_one_key_of("design", "relation", "count", "level", "mode"),
                key_requires_other_key("by", "relation"),
            ],
        ]
    ]
    """Name of a factor -> rule for a point's level; all parameters in `vary` are factors, too."""
    relative: NotRequired[
        Annotated[
            list[
                Annotated[
                    RelativeMetric,
                    needs_exactly_one_key_of("to", "per"),
                    key_requires_other_key("to", "same"),
                    key_requires_other_key("same", "to"),
                ]
            ],
            MinLen(1),
        ]
    ]
    """Metrics that are computed from others, such as ratios to the values of other points."""
    resources: NotRequired[Annotated[list[DeclaredResource], MinLen(1)]]
    """Rows of this experiment that summaries show."""
    figures: NotRequired[list[AnyFigure]]
    """Figures of the report."""

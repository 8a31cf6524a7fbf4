"""Experiments: which loads run where, which factors they have, and what their figures show."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
    DIFFERENT,
    Count,
    Name,
    OneOrSeveral,
    Positive,
    Side,
    Text,
    Texts,
    Value,
    key_needs,
    with_one_key_of,
)
from chaosity.documents.figures import AnyFigure

CoreGroup = Literal["l3_domain", "node", "package", "machine"]
AnyGroup = Literal["core", "l3_domain", "core_kind", "node", "package", "machine"]
NodeOrPackage = Literal["node", "package"]


class InitiatorSelector(TypedDict, total=False):
    """Selects initiators; references such as `same_as` name an endpoint: ``load.initiator``."""

    each: Literal["pu"] | AnyGroup
    """One initiator for each processing unit, core, L3 domain, ... of the host.

    On a host without an L3 cache, `l3_domain` means the cores that share the largest cache. If all
    cores are equal, `core_kind` is the machine.
    """
    each_set_of: Literal["node"]
    """Sets of nodes that have processing units, of every size; each set runs one program."""
    in_each_set_of: Literal["node"]
    """With `each: node` and `together: true`: a point for each set, with a load on each node."""
    at_most_sets: Count
    """The largest number of sets.

    Of more sets, some are taken, evenly spread, at least one of every size.
    """
    first_pu_of: AnyGroup
    """The first processing unit of each of these."""
    without: Side
    """With `each` and `one_of_each_relation_to`: leave out the cores of this earlier initiator."""
    at_least: Annotated[int, Ge(2)]
    """The least number of groups, such as 2 L3 domains.

    Where there are fewer, a few evenly spread cores of each node are taken: 4 of each node, or
    fewer on hosts with many nodes, 16 in all.
    """
    at_most: Count
    """The largest number of groups; of more groups, some are taken, evenly spread."""
    growing: Literal["node", "package", "machine"]
    """1, 2, ... cores of each such group, up to all.

    Once packed (one L3 domain after the other), and once spread over the L3 domains.
    """
    first_half_of: CoreGroup
    """The first half of the cores of each such group; `others_of` and `within` take the other."""
    others_of: Side
    """Cores near this initiator that it does not use."""
    within: OneOrSeveral[CoreGroup]
    """Where `others_of` takes cores from; of several levels the one with most cores."""
    first_pu: Literal[True]
    """With `others_of`: take only the first processing unit."""
    names: Texts
    """Initiators by name, such as node0, l3_0 or pu17.

    Core kinds are called efficiency_cores and performance_cores, or kind0, kind1, ... if there are
    more than two or if the faster kind is unknown.
    """
    same_as: Side
    """The initiator of another load of the point."""
    local_to: Side
    """The cores of the nodes with the memory or the drives of this target.

    For memory without cores, those of the nearest node.
    """
    one_of_each_relation_to: Side
    """One node for each relation to this endpoint.

    The relations are: the same node, another node of the package, a node of another package.
    """
    by: Literal["l3_domain"]
    """With `one_of_each_relation_to`: take cores instead of nodes.

    Another core of the same L3 domain is then a relation of its own.
    """
    threads: Literal["one_per_core", "all"]
    """One thread on each core, or also on each SMT sibling; default: as the config says.

    If a load has initiators with both, the threads are a level (`smt`), and a host without SMT
    leaves the design out.
    """


class OpenclSelector(TypedDict, total=False):
    """Selects OpenCL devices as targets, as `chaosity topology` lists them.

    A host without such devices has no such points, and the plan says so. With PoCL the processor is
    a device, which uses the processing units of the initiator.
    """

    each: Literal["device"]
    """Every OpenCL device."""
    names: Texts
    """Devices by name, such as opencl0."""
    none: Literal[True]
    """Also a point without this load, as the baseline."""


class DriveSelector(TypedDict, total=False):
    """Selects drives and drive sets as targets."""

    each: Literal["drive"]
    """Every drive alone."""
    first_of: NodeOrPackage
    """The first drive of each node or package, then the first two, ... up to all.

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
    """The largest number of sets of `each`, `all_of` or `all_of_each_set_of`, evenly spread."""
    local: Literal[True]
    """Only drives of the initiator's own nodes."""
    one_of_each_relation: Literal[True]
    """Of the nodes or packages with drives, only the first of each relation to the initiator."""
    writable: Literal[True]
    """Only drives that the inventory names in `chaosity_destructive_drives`.

    The category `storage_write` needs this key.
    """
    none: Literal[True]
    """Also a point without this load, as the baseline."""


class TargetSelector(TypedDict, total=False):
    """Selects targets: memory nodes, placements of pages, drives or devices."""

    each: Literal["node"]
    """Every memory node alone."""
    each_other: Literal["package"]
    """The memory of each package without cores of the initiator, as one target."""
    all: Literal["node"]
    """All memory nodes as one target."""
    policies: Texts
    """Placements of pages over nodes.

    first_touch, uniform_workers, uniform_all, autonuma, canonical, canonical_contended, bwap and
    bwap_uniform; chaosity/place/page_shares.py explains them.
    """
    weights_from: dict[str, str]
    """Name of weights -> the experiment that measures them, canonical for example.

    Without its results of the same host, the plan leaves the placement out and says so; the next
    run adds it.
    """
    nearest: Literal[True]
    """With `each`: only nodes to which no other initiator is nearer."""
    none: Literal[True]
    """Also a point without this load, as the baseline."""
    local_to: Side
    """The memory nodes of an initiator, or those nearest to it."""
    one_of_each_relation_to: Side
    """A memory node of each relation."""
    same_as: Side
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
    local_to: Side
    """The memory nodes of an endpoint."""
    names: Texts
    """Memory nodes by name."""
    one_of_each_relation_to: Side
    """One memory node for each relation to this endpoint."""


class CacheOrMemoryMultiple(TypedDict):
    """A working set as a multiple of a cache or of the usable share of the target node."""

    times: Positive
    """Factor of the size."""
    of: Literal["l1", "l2", "l3", "node"]
    """The cache of one core, or the usable share of the target node."""


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
            Annotated[int, Ge(1), Le(16), Field(description="Sizes per doubling; default: 1.")]
        ],
    },
)


def _list_or_range(value: object) -> str:
    return "list" if isinstance(value, list) else "range"


# Working sets as a list, or in even steps between two sizes.
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
    """Names in `kernels` of the benchmark; each is a level."""
    together: NotRequired[Literal[True, "single_initiator_allowed"]]
    """One load for each initiator, all at the same time.

    No point if there is a single initiator, unless it is allowed.
    """
    responder: NotRequired[Initiators]
    """The second core of a transfer, never the initiator itself."""
    sizes: NotRequired[WorkingSets]
    """Working sets; each is a level."""
    vary: NotRequired[Annotated[dict[Name, Levels], MinLen(1)]]
    """Parameters of the benchmark that are varied, and their levels, as in pages: [thp, base, 2M].

    Each is a factor and part of the point's name. The plan notes huge pages that are not reserved
    and sizes that do not fit, and leaves them out.
    """
    initiator: Initiators
    """Which processing units issue the accesses."""
    target: OneOrSeveral[Annotated[TargetSelector, MinLen(1)]]
    """What is accessed."""
    buffers: NotRequired[Buffers]
    """Memory into which drives are read, a level of the load; default: the initiator's own.

    The command of the benchmark must use `target.page_nodes`.
    """


class LoadDesignsByRole(TypedDict):
    """Role -> load, for loads that run at the same time."""

    loads: Annotated[dict[Name, LoadDesign], MinLen(1)]
    """Name of a role, such as memory or storage -> its load."""


class FactorLevelRule(TypedDict, total=False):
    """The rule for a factor's level in a point: exactly one key, and `by` for a relation.

    An endpoint is LOAD.initiator, LOAD.target and so on. LOAD may be `only`, the only load of a
    point, whatever its name is; so loads of several designs can share a factor.
    """

    design: Literal[True]
    """The name of the point's design."""
    relation: Annotated[list[Side], Field(min_length=2, max_length=2)]
    """Two endpoints; the level is where the second lies, seen from the first.

    For example same node, same package or other package.
    """
    by: Literal["package", "l3_domain"]
    """package: same, other, or both; l3_domain: also whether two initiators share a domain."""
    count: Side
    """LOAD.target; the level is the number of its drives."""
    level: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.(initiator|target|buffers|kernel)$")]
    """LOAD.initiator, LOAD.target, LOAD.buffers or LOAD.kernel; the level is its name."""
    mode: str
    """A load; the level is serial, or concurrent if several of it run."""


class RelativeMetric(TypedDict):
    """A further metric, computed from `metric` of `load`.

    It is divided by the same metric of a reference point, or given `per` unit of a rate. The
    reference is in the same replicate, with the levels in `to`, and agrees in `same`.
    """

    name: Name
    """Name of the metric, without a unit."""
    load: str
    """Role of the load."""
    metric: str
    """Metric of this load."""
    to: NotRequired[Annotated[dict[str, str | int], MinLen(1)]]
    """Factors, levels or columns of the load, and their level in the reference.

    The analysis leaves references out; `where: {reference: false}` hides them in a figure.
    """
    same: NotRequired[Annotated[list[Text], MinLen(1), DIFFERENT]]
    """Factors, levels or columns in which load and reference agree."""
    of_means: NotRequired[Literal[True]]
    """One ratio of the mean times of all replicates, instead of one ratio for each replicate.

    The time is the reciprocal of a rate, or the metric itself if less of it is better.
    """
    per: NotRequired[str]
    """A rate of the same load, such as runs_per_second; a count grows with the measured time.

    The metric, which a processor counter gives, is divided by what the load did at this rate while
    the counter ran.
    """


class DeclaredResource(TypedDict):
    """Rows of the report's first table, "What can this machine do?", for loads that ran alone.

    Each row has the best and the worst place. The page of all hosts and the comparison of
    configurations show them too.
    """

    name: Text
    """Name of the rows, such as Memory bandwidth; another one for each resource."""
    load: str
    """Role of the load."""
    metric: str
    """Metric that is shown."""
    where: NotRequired[Annotated[dict[Name, OneOrSeveral[Value]], MinLen(1)]]
    """Column, factor or level -> value, or list of values.

    Only equal loads at different places may be left, because they are compared: one kernel, one
    queue depth and so on.
    """
    levels: NotRequired[Literal["initiator_kind", "target_kind", "relation"]]
    """The column that splits the places into rows, small to large or near to far.

    Default: one row.
    """


class ExperimentDocument(TypedDict):
    """A file of workflow/experiments."""

    experiment: Name
    """Name of the file, without .yaml."""
    title: NotRequired[Text]
    """Heading in the report, in a few words. Default: words of the name."""
    question: str
    """The question that it answers, for the list of experiments and the report."""
    source: str
    """Section or figure of the document that it follows."""
    replicates: NotRequired[Annotated[int, Ge(1), Le(1000)]]
    """Least number of replicates, also if the config has fewer."""
    confidence: NotRequired[Annotated[float, Ge(0.5), Le(0.999)]]
    """Confidence of intervals and tests, in figures and the analysis of variance; default: 0.95."""
    designs: Annotated[dict[str, LoadDesignsByRole], MinLen(1)]
    """Name of a part of the experiment -> loads that run at the same time."""
    factors: NotRequired[
        dict[
            str,
            Annotated[
                FactorLevelRule,
                with_one_key_of("design", "relation", "count", "level", "mode"),
                key_needs("by", "relation"),
            ],
        ]
    ]
    """Name of a factor -> how a point's level follows; besides these, everything in `vary`."""
    relative: NotRequired[
        Annotated[
            list[
                Annotated[
                    RelativeMetric,
                    with_one_key_of("to", "per"),
                    key_needs("to", "same"),
                    key_needs("same", "to"),
                ]
            ],
            MinLen(1),
        ]
    ]
    """Ratios to other points, as further metrics."""
    resources: NotRequired[Annotated[list[DeclaredResource], MinLen(1)]]
    """What summaries show of this experiment."""
    figures: NotRequired[list[AnyFigure]]
    """Figures of the report."""

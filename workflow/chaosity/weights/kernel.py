"""Weights as the Linux kernel takes them: whole numbers of 1 to 255, one set for the machine.

Weighted interleave came with Linux 6.9 (Documentation/ABI/testing/
sysfs-kernel-mm-mempolicy-weighted-interleave) and with numactl 2.0.19 (`-w` for short). A program
names the nodes alone; how many pages in a row each gets stands in sysfs, for all programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.topology.cpusets import format_cpu_list

SMALLEST, LARGEST = 1, 255
SYSFS = "/sys/kernel/mm/mempolicy/weighted_interleave"
# A node gets as many pages in a row as its weight says: with 255 a megabyte lies on one node, and
# what is smaller is not spread at all. So 2 % of a share are given away for small numbers; weights
# come from measurements that scatter as much.
_GIVEN_AWAY = 0.02
GLOBAL_NOTE = (
    "The kernel (6.9 and later) has one set of weights for the whole machine, not one for each "
    "program or initiator: these are right while a program on the workers has the machine to "
    "itself."
)
NUMACTL_NOTE = (
    "numactl (2.0.19 and later, -w for short) takes the nodes alone and the weights from the "
    "kernel, so set them first; they hold for memory that is touched from then on."
)
ZERO_NOTE = (
    "No weight of 0 can be written (it means the default, or is refused from Linux 6.16 on): nodes "
    "without pages are left out of numactl's list of nodes instead."
)
COARSE_NOTE = "Numbers from 1 to 255 cannot say shares as small as these, so they are far off."
# Beyond what is given away by a clear margin: the numbers then say something else than the shares.
_COARSE_PERCENT = 5.0


@dataclass(frozen=True)
class KernelWeights:
    """Weights that can be written.

    Attributes:
        weights: by node, without those that get no pages.
        error_percent: the largest departure of any node's share from what was wanted, as a
            percentage of that share.
    """

    weights: Mapping[int, int]
    error_percent: float

    @property
    def nodes(self) -> str:
        """The nodes as numactl wants them, such as 0-2,5."""
        return format_cpu_list(self.weights)


def kernel_weights(weights: Mapping[int, float]) -> KernelWeights:
    """The smallest whole numbers whose shares are within 2 % of the best that 1 to 255 can give.

    Args:
        weights: share by node; only their ratios count, and a share of 0 leaves the node out.

    Raises:
        UserError: a share is below 0, or none is above.
    """
    used = {node: share for node, share in sorted(weights.items()) if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        raise UserError("shares have to be 0 or more, and one above 0", "the weights")
    highest = max(used.values())
    tried = []
    for largest in range(SMALLEST, LARGEST + 1):
        numbers = {
            node: max(SMALLEST, round(share / highest * largest)) for node, share in used.items()
        }
        tried.append((_error(used, numbers), numbers))
    good = min(error for error, _ in tried) + _GIVEN_AWAY
    error, numbers = next(one for one in tried if one[0] <= good)
    return KernelWeights(numbers, 100.0 * error)


def _error(wanted: Mapping[int, float], numbers: Mapping[int, int]) -> float:
    """The largest relative departure of a share."""
    all_wanted, all_given = sum(wanted.values()), sum(numbers.values())
    return max(
        abs(numbers[node] / all_given * all_wanted / share - 1.0) for node, share in wanted.items()
    )


def sysfs_lines(found: KernelWeights) -> list[str]:
    """Lines that set the weights, for a shell of root."""
    return [f"echo {number} > {SYSFS}/node{node}" for node, number in found.weights.items()]


def numactl_line(found: KernelWeights, workers: Sequence[int]) -> str:
    """The line that runs a program on the workers with its pages on the weighted nodes."""
    bound = format_cpu_list(workers)
    return f"numactl --cpunodebind={bound} --weighted-interleave={found.nodes} PROGRAM"


def notes(found: KernelWeights, nodes: int) -> list[str]:
    """What has to be known of these weights, a sentence each.

    Args:
        found: the weights.
        nodes: how many nodes could have got pages.
    """
    said = [GLOBAL_NOTE, NUMACTL_NOTE]
    if len(found.weights) < nodes:
        said.append(ZERO_NOTE)
    if found.error_percent > _COARSE_PERCENT:
        said.append(COARSE_NOTE)
    return said

"""Weights as the Linux kernel takes them: whole numbers of 1 to 255, one set for the machine.

Weighted interleave came with Linux 6.9 (Documentation/ABI/testing/
sysfs-kernel-mm-mempolicy-weighted-interleave) and with numactl 2.0.19 (`-w` for short). A program
names the nodes alone; how many pages in a row each gets stands in sysfs, for all programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaosity.cpusets import format_cpu_list
from chaosity.place.page_shares import integer_weights

SYSFS = "/sys/kernel/mm/mempolicy/weighted_interleave"
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
    """The numbers for shares by node, as `place.shares.whole_numbers`.

    Raises:
        UserError: a share is below 0, or none is above.
    """
    numbers, error = integer_weights(weights)
    return KernelWeights(numbers, 100.0 * error)


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

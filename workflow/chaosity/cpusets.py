"""Read and write sets of CPUs or nodes as Linux lists and hexadecimal masks.

Linux lists (`0-3,8`) are used by sysfs, numactl and taskset. Hexadecimal masks in 32-bit words
(`0x0000000f,,0x1`) are used by hwloc's XML (`hwloc_bitmap_asprintf`) and, without `0x`, by the
`cpumap` files of sysfs. Sets may have gaps and indexes above 64 (a KNL has 272 processing units).
"""

from __future__ import annotations

from collections.abc import Iterable

CpuSet = tuple[int, ...]
"""Sorted OS indexes without duplicates; the empty tuple is the empty set."""

_BITS_PER_WORD = 32
# The Linux kernel allows at most 8192 processing units and 1024 nodes. A text with a far higher
# index is damaged, and its set could fill the memory. Lists may contain any index of up to six
# digits, since names of places may contain these indexes; a set of all these indexes takes at most
# 0.2 GB. The limit of masks is lower, since a topology has thousands of masks.
HIGHEST_UNIT_OR_NODE_INDEX = 2**20 - 1
_MOST_MASK_WORDS = 2**16 // _BITS_PER_WORD


def make_cpu_set(indexes: Iterable[int]) -> CpuSet:
    """Return the indexes as a set: sorted, without duplicates."""
    return tuple(sorted(set(indexes)))


def is_index(text: str) -> bool:
    """Return whether a text is the decimal index of a processing unit or node."""
    # A longer text is no index, and int() would raise an error for a text of some thousands of
    # digits.
    return (
        text.isascii()
        and text.isdigit()
        and len(text) <= 9
        and int(text) <= HIGHEST_UNIT_OR_NODE_INDEX
    )


def parse_cpu_list(text: str) -> CpuSet:
    """Return the set of a Linux list such as `0-3,8`; empty or blank text is the empty set.

    Raises:
        ValueError: `text` is not a Linux list, an index is above `HIGHEST_UNIT_OR_NODE_INDEX`, or
        the end of a
            range is below its start.
    """
    indexes: set[int] = set()
    for part in text.split(",") if text.strip() else []:
        first, dash, last = part.strip().partition("-")
        if not is_index(first) or (dash and not is_index(last)):
            wrong = f"{part.strip()!r} in {text!r} is neither an index nor a range"
            raise ValueError(f"{wrong} of indexes up to {HIGHEST_UNIT_OR_NODE_INDEX}")
        start, end = int(first), int(last or first)
        if end < start:
            raise ValueError(f"range {part.strip()!r} in {text!r} runs backwards")
        indexes.update(range(start, end + 1))
    return make_cpu_set(indexes)


def format_cpu_list(indexes: Iterable[int]) -> str:
    """Return the shortest Linux list of a set: `0-3,8` for `(0, 1, 2, 3, 8)`."""
    runs: list[list[int]] = []
    for index in make_cpu_set(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_mask(text: str) -> CpuSet:
    """Return the set of a mask in comma-separated 32-bit words, the most significant first.

    hwloc prefixes words with `0x` and omits words that are zero; the kernel does neither.

    Raises:
        ValueError: `text` is not a mask, has more words than any machine needs, or is an infinite
            mask (`0xf...f`), which is not a set.
    """
    words = text.strip().split(",")
    if any(word and not _is_mask_word(word) for word in words):
        raise ValueError(f"{text!r} is not a mask of 32-bit hexadecimal words")
    if len(words) > _MOST_MASK_WORDS:
        raise ValueError(
            f"the mask has {len(words)} words, no machine more than {_MOST_MASK_WORDS}"
        )
    bits = 0
    for word in words:
        bits = bits << _BITS_PER_WORD | (int(word, 16) if word else 0)
    return tuple(index for index in range(bits.bit_length()) if bits >> index & 1)


def format_mask(indexes: Iterable[int]) -> str:
    """Return the mask of a set for hwloc and taskset: 32-bit words, most significant first."""
    bits = sum(1 << index for index in set(indexes))
    words = [bits & 0xFFFFFFFF]
    while bits := bits >> _BITS_PER_WORD:
        words.append(bits & 0xFFFFFFFF)
    return ",".join(f"0x{word:08x}" for word in reversed(words))


def _is_mask_word(text: str) -> bool:
    digits = text.removeprefix("0x")
    return 0 < len(digits) <= 8 and all(digit in "0123456789abcdefABCDEF" for digit in digits)

"""The kernel's calls for memory policies, through ctypes, since the standard library has none.

Numbers: ``unistd_64.h`` of x86-64, and ``asm-generic/unistd.h``, which all later machines share.
Meanings: set_mempolicy(2), move_pages(2), prctl(2).
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import platform
from collections.abc import Collection, Sequence

from chaosity.errors import UserError

# <linux/mempolicy.h>
DEFAULT, BIND, INTERLEAVE, WEIGHTED_INTERLEAVE = 0, 2, 3, 6
_MOVE = 1 << 1  # MPOL_MF_MOVE: pages that the process has for itself
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_GENERIC = {"set_mempolicy": 237, "move_pages": 239}
_NUMBERS = {
    "x86_64": {"set_mempolicy": 238, "move_pages": 279},
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
}
_LIBC = ctypes.CDLL(None, use_errno=True)
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def _call(name: str, *arguments: object) -> int:
    """Make a call.

    Raises:
        OSError: the kernel refused.
        UserError: nobody has written down the call's number on this kind of machine.
    """
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise UserError(f"the number of {name} on {platform.machine()} is not known here")
    result = _LIBC.syscall(ctypes.c_long(numbers[name]), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def set_mempolicy(mode: int, nodes: Collection[int] = ()) -> None:
    """Set this thread's policy, which threads and programs that it starts inherit.

    Raises:
        OSError: the kernel lacks the mode, or may not use a node.
    """
    if not nodes:
        _call("set_mempolicy", ctypes.c_long(mode), None, ctypes.c_ulong(0))
        return
    words = (ctypes.c_ulong * (max(nodes) // _WORD_BITS + 1))()
    for node in nodes:
        words[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    # The kernel takes one bit less than it is told.
    bits = ctypes.c_ulong(len(words) * _WORD_BITS + 1)
    _call("set_mempolicy", ctypes.c_long(mode), words, bits)


def supports_policy(mode: int, nodes: Collection[int]) -> bool:
    """Whether the kernel takes a policy for these nodes; this process has the default again."""
    try:
        set_mempolicy(mode, nodes)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            return False
        raise
    set_mempolicy(DEFAULT)
    return True


def move_pages(pid: int, addresses: array.array, nodes: Sequence[int] | None) -> array.array:
    """Ask where pages are, or move each to a node.

    Args:
        pid: of the process.
        addresses: of the pages, type "Q".
        nodes: for each page where it is to go; None only asks.

    Returns:
        Node of each page; below 0 an error number, such as -ENOENT where no page is.

    Raises:
        OSError: the process is gone or somebody else's.
    """
    status = array.array("i", bytes(4 * len(addresses)))
    wanted = None if nodes is None else _pointer(array.array("i", nodes))
    _call(
        "move_pages",
        ctypes.c_long(pid),
        ctypes.c_ulong(len(addresses)),
        _pointer(addresses),
        wanted,
        _pointer(status),
        ctypes.c_long(_MOVE),
    )
    return status


def _pointer(numbers: array.array) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (numbers.itemsize * len(numbers))).from_buffer(numbers)


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends."""
    _LIBC.prctl(_DEATH_SIGNAL, 9, 0, 0, 0)

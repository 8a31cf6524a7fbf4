"""Make system calls for memory policies by ctypes, since the standard library lacks these calls.

The numbers of system calls are from ``unistd_64.h`` (x86-64) and ``asm-generic/unistd.h``, which
later architectures share. The calls are explained in set_mempolicy(2), move_pages(2), prctl(2).
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import platform
from collections.abc import Collection, Sequence

from chaosity.errors import UserError

# The numbers of the memory policies are from <linux/mempolicy.h>.
DEFAULT, INTERLEAVE, WEIGHTED_INTERLEAVE = 0, 3, 6
_MOVE_EXCLUSIVE_PAGES = 1 << 1  # MPOL_MF_MOVE moves only pages that no other process uses
_PR_SET_PDEATHSIG = 1  # PR_SET_PDEATHSIG of prctl(2)
_GENERIC_SYSTEM_CALL_NUMBERS = {"set_mempolicy": 237, "move_pages": 239}
_SYSTEM_CALL_NUMBERS = {
    "x86_64": {"set_mempolicy": 238, "move_pages": 279},
    "aarch64": _GENERIC_SYSTEM_CALL_NUMBERS,
    "riscv64": _GENERIC_SYSTEM_CALL_NUMBERS,
    "loongarch64": _GENERIC_SYSTEM_CALL_NUMBERS,
}
_LIBC = ctypes.CDLL(None, use_errno=True)
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def _make_system_call(name: str, *arguments: object) -> None:
    """Make a system call; if the kernel refuses it, raise an `OSError` with the kernel's reason."""
    numbers = _SYSTEM_CALL_NUMBERS.get(platform.machine())
    if numbers is None:
        raise UserError(f"the system call number of {name} on {platform.machine()} is unknown")
    if _LIBC.syscall(ctypes.c_long(numbers[name]), *arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def set_mempolicy(mode: int, nodes: Collection[int] = ()) -> None:
    """Set the memory policy of this thread and of threads and programs that it starts later.

    Raises:
        OSError: the kernel lacks the mode, or this process must not use one of the nodes.
    """
    if not nodes:
        _make_system_call("set_mempolicy", ctypes.c_long(mode), None, ctypes.c_ulong(0))
        return
    words = (ctypes.c_ulong * (max(nodes) // _WORD_BITS + 1))()
    for node in nodes:
        words[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    # The kernel reads one bit less than `maxnode` says, so `maxnode` is one larger.
    bits = ctypes.c_ulong(len(words) * _WORD_BITS + 1)
    _make_system_call("set_mempolicy", ctypes.c_long(mode), words, bits)


def supports_policy(mode: int, nodes: Collection[int]) -> bool:
    """Return whether the kernel accepts a memory policy for some nodes, by a short trial."""
    try:
        set_mempolicy(mode, nodes)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            return False
        raise
    set_mempolicy(DEFAULT)
    return True


def move_pages(
    pid: int, addresses: array.array[int], nodes: Sequence[int] | None
) -> array.array[int]:
    """Move each page of a process to its node, and return the node of each page.

    If a number in the result is below 0, it is the kernel's error for this page, such as -ENOENT
    for an absent page. If `nodes` is None, no page moves. The array `addresses` has the type code
    "Q".

    Raises:
        OSError: the process has ended or belongs to another user.
    """
    status = array.array("i", bytes(4 * len(addresses)))
    _make_system_call(
        "move_pages",
        ctypes.c_long(pid),
        ctypes.c_ulong(len(addresses)),
        _pointer_to_integers(addresses),
        None if nodes is None else _pointer_to_integers(array.array("i", nodes)),
        _pointer_to_integers(status),
        ctypes.c_long(_MOVE_EXCLUSIVE_PAGES),
    )
    return status


def _pointer_to_integers(numbers: array.array[int]) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (numbers.itemsize * len(numbers))).from_buffer(numbers)


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)

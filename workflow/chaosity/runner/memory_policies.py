"""Find out whether this process may place memory on nodes; rules of a container can forbid it."""

from __future__ import annotations

import ctypes
import errno
import platform

from chaosity.errors import UserError

# Number of the system call get_mempolicy(2): unistd_64.h (x86-64) and asm-generic/unistd.h.
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236, "riscv64": 236, "loongarch64": 236}


def check_memory_policies() -> None:
    """Check that the system calls of memory policies are allowed, as of a whole container.

    Raises:
        UserError: they are forbidden.
    """
    number = _GET_MEMPOLICY.get(platform.machine())
    if number is None:
        return
    failed = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number), None, None, 0, None, 0
    )
    # The kernel itself never answers EPERM.
    if failed and ctypes.get_errno() == errno.EPERM:
        remedy = "add CAP_SYS_NICE (docker --cap-add SYS_NICE)"
        raise UserError("the container forbids memory policies", remedy=remedy)

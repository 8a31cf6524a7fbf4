"""Runs a command under a filter that forbids io_uring, as containers do; 77 where none can be set.

The filter is seccomp's (prctl(2), linux/seccomp.h): io_uring_setup, number 425 on all machines,
answers EPERM and all else is allowed.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
IO_URING_SETUP = 425
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

program = b"".join(
    struct.pack("HBBI", *step)
    for step in (
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP),
        (RETURN, 0, 0, FAIL_WITH_EPERM),
        (RETURN, 0, 0, ALLOW),
    )
)
steps = ctypes.create_string_buffer(program)


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
wanted = Filter(len(program) // 8, ctypes.addressof(steps))
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(wanted), 0, 0) != 0:
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])

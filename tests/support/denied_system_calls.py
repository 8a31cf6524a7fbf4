"""Runs a command under a filter that forbids system calls, as containers do.

    denied_system_calls.py NUMBERS COMMAND [ARGUMENT ...]

The filter is seccomp's (prctl(2), linux/seccomp.h): the calls with these numbers, such as 425,426,
answer EPERM and all else is allowed. Exit status 77: no filter can be set.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

numbers = [int(number) for number in sys.argv[1].split(",")]
program = b"".join(
    struct.pack("HBBI", *step)
    for step in (
        (LOAD_NUMBER, 0, 0, 0),
        *((JUMP_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, FAIL_WITH_EPERM),
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
os.execvp(sys.argv[2], sys.argv[2:])

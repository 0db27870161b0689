"""Seccomp: kernel calls that candidate code does not need and that lead out of a sandbox past files and namespaces.

A socket of the file system can be connected to through a read-only mount and from an empty network namespace, so calls
that make or connect sockets are refused; so are queues and memory that outlive a process, and calls that read or steer
other processes. Whoever makes one is told EACCES. What is open already, the judge's channel above all, goes on.

Constants and structures as in <linux/seccomp.h>, <linux/filter.h> and <linux/audit.h>; numbers of calls as in
<asm/unistd_64.h> (x86_64) and <asm-generic/unistd.h> (aarch64).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import NamedTuple

_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_SPEC_ALLOW = 1 << 2  # older kernels slow every filtered process down against Spectre; the host side is timed
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_NOT_BELOW, _RETURN = 0x20, 0x15, 0x35, 0x06
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE = 0, 4
_FIRST_OF_X32 = 0x40000000  # the second way of x86_64 to number its calls


class _Machine(NamedTuple):
    audit: int  # AUDIT_ARCH_*
    seccomp: int  # the number of the call that installs a filter
    refused: dict[str, int]


_EVERYWHERE = {"io_uring_setup": 425, "pidfd_getfd": 438}  # the first makes sockets without any other call
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        317,
        {
            **{"socket": 41, "connect": 42, "bind": 49, "listen": 50, "socketpair": 53},
            **{"shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240},
            **{"add_key": 248, "request_key": 249, "keyctl": 250},
            **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311},
            **_EVERYWHERE,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        277,
        {
            **{"socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "connect": 203},
            **{"mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmat": 196},
            **{"add_key": 217, "request_key": 218, "keyctl": 219},
            **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271},
            **_EVERYWHERE,
        },
    ),
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("n_instructions", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def is_available() -> bool:
    """Whether this kernel filters calls, on a processor whose numbers are known here."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    action = ctypes.c_uint32(_ERRNO)
    return _seccomp(machine, _GET_ACTION_AVAILABLE, 0, ctypes.byref(action)) == 0


def refuse_ways_out() -> None:
    """Refuse the calls to this thread and all that it starts, for good. Threads that run already, as those of a CUDA
    driver, keep them. The process must have no new privileges (`namespaces.drop_privileges`).

    Raises:
        OSError: the kernel refuses the filter.
    """
    machine = _MACHINES[platform.machine()]
    instructions = _filter(machine)
    program = _Program(len(instructions), instructions)
    if _seccomp(machine, _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(program)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _seccomp(machine: _Machine, operation: int, flags: int, argument: object) -> int:
    return int(_libc.syscall(ctypes.c_long(machine.seccomp), operation, flags, argument))


def _filter(machine: _Machine) -> ctypes.Array[_Instruction]:
    """Allow every call of this architecture but the refused; refuse those of another, which numbers them otherwise."""
    numbers = sorted(machine.refused.values())
    to_refusal = len(numbers) + 1  # from the comparison with `_FIRST_OF_X32`, which `len(numbers)` others follow
    lines = [
        (_LOAD, 0, 0, _OFFSET_ARCHITECTURE),
        (_JUMP_IF_EQUAL, 0, to_refusal + 2, machine.audit),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_IF_NOT_BELOW, to_refusal, 0, _FIRST_OF_X32),
        *((_JUMP_IF_EQUAL, len(numbers) - n, 0, number) for n, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EACCES),
    ]
    return (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))

"""Landlock: what a process without namespaces can still forbid itself and all that it starts.

Constants and structures as in <linux/landlock.h>; rights by version of the interface as the kernel's documentation of
Landlock lists them.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from evaluators.sandbox.devices import usable_devices

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_CHANGE_FOLDERS = sum(1 << bit for bit in range(4, 13))  # remove and make files, folders, links, pipes, devices
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_BIND_AND_CONNECT_TCP = 0b11
_SCOPE_SIGNAL = 1 << 1

ABI_FILES, ABI_TRUNCATE, ABI_NETWORK, ABI_SIGNALS = 2, 3, 4, 6

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("access_fs", ctypes.c_uint64), ("access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The version of Landlock that this kernel offers; 0 when it offers none."""
    return max(0, int(_libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), _VERSION_FLAG)))


def restrict(workspace: str, *, for_candidate: bool = False) -> None:
    """Forbid this process for good, as far as the kernel can: to write outside `workspace` and /dev, to use TCP, and
    to signal processes outside. Called again `for_candidate`: to write to shared memory and to devices that it does
    not need either. It must have no new privileges (`namespaces.drop_privileges`). CUDA names its threads in
    /proc/self, and does not start where it cannot."""
    version = abi()
    if version < ABI_FILES:  # the first version forbids every move between folders, which caches need
        return
    writes = _WRITE_FILE | _CHANGE_FOLDERS | _REFER | (_TRUNCATE if version >= ABI_TRUNCATE else 0)
    network = _BIND_AND_CONNECT_TCP if version >= ABI_NETWORK else 0
    signals = _SCOPE_SIGNAL if version >= ABI_SIGNALS else 0
    attributes = _Ruleset(writes, network, signals)
    n_bytes = 24 if signals else 16 if network else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(n_bytes), 0)
    _allow(ruleset, workspace, writes)
    if not for_candidate:
        _allow(ruleset, "/dev/shm", writes)
    devices = usable_devices() if for_candidate else ["/dev"]
    for path in (*devices, "/proc/self/task"):
        _allow(ruleset, path, writes & (_WRITE_FILE | _TRUNCATE))
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not Path(path).exists():
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathBeneath(rights, place)
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(place)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock: {os.strerror(error)}")
    return result

"""The kernel calls of isolation, through ctypes: Python 3.11 has no `os.unshare`, and no version has the others.

Constants and structures as in <sched.h>, <sys/mount.h>, <linux/mount.h>, <linux/prctl.h> and <linux/capability.h>.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from evaluators.sandbox.devices import usable_devices

_NEWNS = 0x00020000
_NEWIPC = 0x08000000
_NEWUSER = 0x10000000
_NEWPID = 0x20000000
_NEWNET = 0x40000000

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18

_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NODEV = 1, 4

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_LAST_CAPABILITY = 63

_MASKED_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs")

_libc = ctypes.CDLL(None, use_errno=True)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySet(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


def _call(name: str, *arguments: object) -> int:
    """Call a function of libc; a negative answer raises OSError with the name of the call."""
    result = int(getattr(_libc, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _call("prctl", option, *padded)


def enter_process_namespaces(*, own_ipc: bool) -> None:
    """Leave the network, and with `own_ipc` the shared memory and queues of System V, and let the next fork be pid 1
    of a new pid namespace. Who is not root enters a user namespace first, under its own id.

    Raises:
        OSError: the kernel, a container or a policy refuses.
    """
    uid, gid = os.geteuid(), os.getegid()
    wanted = _NEWPID | _NEWNET | (_NEWIPC if own_ipc else 0)
    if uid == 0:
        _call("unshare", wanted)
        return
    _call("unshare", _NEWUSER | wanted)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def enter_mount_namespace(workspace: str) -> dict[str, str]:
    """As pid 1: mounts of its own, /proc for its own pids (without it CUDA cannot start), files read-only outside
    `workspace`, no devices but `usable_devices`, and an empty /dev/shm. Returns which of the last three (`files`,
    `devices`, `shared memory`) this kernel could not do, and why.

    Raises:
        OSError: no mount namespace, or /proc cannot be mounted.
    """
    _call("unshare", _NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    refused = {}
    protections: dict[str, Callable[[], None]] = {
        "files": partial(_protect_files, workspace),
        "devices": _close_devices,
    }
    for name, protect in protections.items():
        try:
            protect()
        except OSError as error:
            refused[name] = str(error.strerror)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for name in _MASKED_PROC:
        _make_read_only(f"/proc/{name}")
    try:
        _mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "size=2g,mode=1777")
    except OSError as error:
        refused["shared memory"] = str(error.strerror)
    return refused


def hide_devices(paths: Iterable[str]) -> None:
    """In a mount namespace of one's own: whoever opens one of these device files finds /dev/null.

    Raises:
        OSError: one cannot be hidden.
    """
    for path in paths:
        _mount("/dev/null", path, "", _MS_BIND)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None)


def _protect_files(workspace: str) -> None:
    """Make every mount read-only but the workspace. Device files stay writable: see `_close_devices`."""
    _mount(workspace, workspace, "", _MS_BIND)
    _set_mount_attributes("/", _AT_RECURSIVE, _MountAttributes(attr_set=_ATTR_RDONLY))
    _set_mount_attributes(workspace, 0, _MountAttributes(attr_clr=_ATTR_RDONLY))


def _close_devices() -> None:
    """Let no device file below /dev be opened but those that a candidate may use."""
    if not os.path.ismount("/dev"):
        _mount("/dev", "/dev", "", _MS_BIND | _MS_REC)
    opened = _MountAttributes(attr_clr=_ATTR_NODEV)
    _set_mount_attributes("/dev", _AT_RECURSIVE, _MountAttributes(attr_set=_ATTR_NODEV))
    try:
        for path in usable_devices():
            _mount(path, path, "", _MS_BIND | _MS_REC)
            _set_mount_attributes(path, _AT_RECURSIVE, opened)
    except OSError:
        _set_mount_attributes("/dev", _AT_RECURSIVE, opened)  # nothing runs without /dev/null
        raise


def _set_mount_attributes(path: str, flags: int, attributes: _MountAttributes) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    arguments = (ctypes.c_long(_MOUNT_SETATTR), ctypes.c_int(_AT_FDCWD), path.encode(), ctypes.c_uint(flags))
    _call("syscall", *arguments, ctypes.byref(attributes), size)


def _make_read_only(path: str) -> None:
    """Mount a path of /proc over itself, read-only; one that this kernel lacks is skipped."""
    with contextlib.suppress(FileNotFoundError):
        _mount(path, path, "", _MS_BIND | _MS_REC)
        _mount("none", path, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def die_with_parent() -> None:
    """Be killed when the thread that forked this process ends: only for parents with a single thread."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_from_ptrace() -> None:
    """Let no process of the same user read or write this one's memory and descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_privileges() -> None:
    """Give up every capability for good, also what an executed file would bring.

    Root keeps the one that lets it read files of other users: packages may lie in such a folder, and what may be
    written is decided by the mounts.
    """
    keep = 1 << _CAP_DAC_OVERRIDE if os.geteuid() == 0 else 0
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError):
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(_LAST_CAPABILITY + 1):
        if not keep >> capability & 1:
            with contextlib.suppress(OSError):  # unknown to this kernel, or not ours to drop
                _prctl(_PR_CAPBSET_DROP, capability)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    sets = (_CapabilitySet * 2)(_CapabilitySet(keep, keep, 0), _CapabilitySet(0, 0, 0))
    _call("capset", ctypes.byref(header), ctypes.byref(sets))


def descendants(pid: int) -> Iterator[int]:
    """Every living descendant of a process, by the parents that /proc tells."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (parent := _parent_of(entry.name)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    stack = children.get(pid, [])
    while stack:
        found = stack.pop()
        yield found
        stack += children.get(found, [])


def _parent_of(pid: str) -> int | None:
    """The parent of a process, or None when it has ended. The name in `stat` may hold spaces and brackets."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[1])

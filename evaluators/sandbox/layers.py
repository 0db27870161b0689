"""The layers of the sandbox, each with what holds it up on this machine, or what to do where nothing does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evaluators.sandbox import landlock, seccomp

_NAMESPACES = (
    "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian) or"
    " kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or a seccomp profile of the container that permits them"
)
_LANDLOCK = f"a kernel with a newer Landlock; or {_NAMESPACES}"
_SECCOMP = "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64"
_MOUNTS = "a kernel from 5.12 on, and a container that permits mounts"
_CGROUP = "run as a user other than root, or in a container whose cgroups can be written (pids.max)"


@dataclass(frozen=True, slots=True)
class Layer:
    """One thing that a candidate is kept from. `found`: by what, or why not; `advice` is empty where it is active."""

    name: str
    is_active: bool
    found: str
    advice: str = ""


def layers(
    *, has_namespaces: bool, own_ipc: bool, refused: Mapping[str, str], bounds_processes: bool
) -> tuple[Layer, ...]:
    """All layers, in the order in which they are told.

    Args:
        refused: what `namespaces.enter_mount_namespace` could not do, and why.
    """
    found = [*(_of_namespaces(refused, own_ipc) if has_namespaces else _without_namespaces(landlock.abi()))]
    bound = "its cgroup" if os.geteuid() == 0 else "RLIMIT_NPROC"
    found.append(_layer("process bound", bound if bounds_processes else "", "root, and no cgroup to be had", _CGROUP))
    return tuple(found)


def _layer(name: str, by: str, why_not: str, advice: str) -> Layer:
    """Active where something (`by`) holds it up."""
    return Layer(name, True, by) if by else Layer(name, False, why_not, advice)


def _of_namespaces(refused: Mapping[str, str], own_ipc: bool) -> Iterator[Layer]:
    yield Layer("own processes", True, "a pid namespace, which ends with its first process")
    yield Layer("own mounts", True, "a mount namespace with a /proc of its own")
    ways = {
        "files": "read-only outside the workspace",
        "devices": "none can be opened but /dev/null, its like and those of the GPU",
        "shared memory": "a /dev/shm of its own",
    }
    for name, by in ways.items():
        yield _layer(name, "" if name in refused else by, f"the kernel says: {refused.get(name)}", _MOUNTS)
    yield Layer("network", True, "an empty network namespace")
    yield Layer("signals", True, "the pid namespace")
    yield from _filtered("an IPC namespace" if own_ipc else "")
    yield Layer("Landlock", True, f"version {landlock.abi()}, not needed beside namespaces")


def _without_namespaces(abi: int) -> Iterator[Layer]:
    why = "no namespaces are to be had"
    too_old = f"{why}, and Landlock has version {abi}"
    yield Layer("own processes", False, f"{why}: a subreaper finds and kills what is left", _NAMESPACES)
    yield Layer("own mounts", False, f"{why}: files, /proc and GPUs are those of the machine", _NAMESPACES)
    files = abi >= landlock.ABI_FILES
    for name, by in (
        ("files", "read-only outside the workspace, by Landlock"),
        ("devices", "none can be written but /dev/null, its like and those of the GPU, by Landlock"),
        ("shared memory", "/dev/shm can be read and not be written, by Landlock"),
    ):
        yield _layer(name, by if files else "", too_old, _LANDLOCK)
    network = "no TCP, by Landlock" if abi >= landlock.ABI_NETWORK else ""
    yield _layer("network", network or _by_seccomp("no socket can be made"), too_old, _LANDLOCK)
    signals = "none to processes of others, by Landlock" if abi >= landlock.ABI_SIGNALS else ""
    yield _layer("signals", signals, too_old, _LANDLOCK)
    yield from _filtered("")
    yield _layer("Landlock", f"version {abi}" if files else "", f"version {abi}", _LANDLOCK)


def _filtered(ipc: str) -> Iterator[Layer]:
    """What a filter of kernel calls stops in either kind of isolation."""
    why = "the kernel or the processor has no filter of calls that is known here"
    yield _layer("sockets", _by_seccomp("none can be made or connected, those with a path included"), why, _SECCOMP)
    yield _layer("System V", ipc or _by_seccomp("no shared memory, semaphores or queues"), why, _SECCOMP)


def _by_seccomp(what: str) -> str:
    return f"{what}, by seccomp" if seccomp.is_available() else ""

"""What the process of a candidate gives up, in two steps: at its start what no job needs, and right before candidate
code is loaded what a CUDA driver may need to start (sockets, device files, /dev/shm)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evaluators.sandbox import landlock, seccomp

_last_steps: list[Callable[[], object]] = []  # of this process; only a child of the sandbox has any


def confine(workspace: str, *, has_namespaces: bool) -> None:
    """The first step, and what is due for the second."""
    if not has_namespaces:
        landlock.restrict(workspace)
        _last_steps.append(partial(landlock.restrict, workspace, for_candidate=True))
    if seccomp.is_available():
        _last_steps.append(seccomp.refuse_ways_out)


def confine_for_candidate() -> None:
    """The second step, once; nothing in a process that the sandbox did not confine."""
    while _last_steps:
        _last_steps.pop(0)()

"""The processes of a search by what they are, found by a mark in their environment; for benchmarks that kill them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ZYGOTE, NURSERY = "evaluators.sandbox.server", "evaluators.sandbox.nursery"
# two of Ray's own agents end by themselves about a minute after their raylet
RAY_AGENTS = ("DashboardAgent", "RuntimeEnvAgent")


class Process(NamedTuple):
    """One process, as /proc shows it."""

    pid: int
    parent: int
    command: str


def processes_of(mark: str) -> list[Process]:
    """All living processes that have the mark in their environment: whoever was started with it, and all below."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command and mark.encode() in (entry / "environ").read_bytes():
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    found.append(Process(int(entry.name), parent, command[:160]))
    return found


def processes_below(root: int) -> list[Process]:
    """All living processes that come from one, without it."""
    running = {one.pid: one for one in map(_from_stat, _pids()) if one is not None}
    below: list[Process] = []
    parents = {root}
    while children := [one for one in running.values() if one.parent in parents]:
        below += children
        parents = {one.pid for one in children}
    return below


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _from_stat(pid: int) -> Process | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return Process(pid, int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]), command[:160])
    except (OSError, IndexError):  # it ended meanwhile
        return None


def shown(process: Process) -> str:
    """Its command line for a results file: without folders, which differ from machine to machine."""
    return re.sub(r"(?<!\S)/\S*/", "", process.command)[:80]


def is_agent(process: Process) -> bool:
    return any(agent in process.command for agent in RAY_AGENTS)


def _actor(name: str) -> Callable[[Sequence[Process]], list[Process]]:
    return lambda all_of_them: [one for one in all_of_them if one.command.startswith(f"ray::{name}")]


def _zygotes(all_of_them: Sequence[Process]) -> list[Process]:
    """Those that were started by an actor, or are forked by a nursery; what they fork has the same command line."""
    servers = {one.pid: one for one in all_of_them if ZYGOTE in one.command or NURSERY in one.command}
    first = {one.pid for one in servers.values() if one.parent not in servers}
    nurseries = {pid for pid in first if NURSERY in servers[pid].command}
    return [one for one in servers.values() if one.parent in nurseries or one.pid in first - nurseries]


def _candidates(all_of_them: Sequence[Process]) -> list[Process]:
    """Everything below a zygote: its supervisors, the candidates, and the compilers that those call."""
    below = {one.pid for one in _zygotes(all_of_them)}
    found: list[Process] = []
    while children := [one for one in all_of_them if one.parent in below and one not in found]:
        found += children
        below = {one.pid for one in children}
    return found


def _workers(all_of_them: Sequence[Process]) -> list[Process]:
    return [one for one in all_of_them if one.command.startswith("ray::") and not is_agent(one)]


FOUND_BY: dict[str, Callable[[Sequence[Process]], list[Process]]] = {
    "evaluator": _actor("EvaluatorActor"),
    "preparer": _actor("PreparerActor"),
    "island": _actor("IslandsActor"),
    "archive": _actor("ArchiveActor"),
    "zygote": _zygotes,
    "candidate": _candidates,
    "worker": _workers,
}

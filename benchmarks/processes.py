"""Memory and processor time of the processes of a benchmark, by kind, read from /proc."""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.victims import Process, processes_below

TICKS = os.sysconf("SC_CLK_TCK")
_MARK = "EVOLVE_BENCHMARK"
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
ROLES = {
    "ArchiveActor": "archive",
    "IslandsActor": "islands",
    "EvaluatorActor": "evaluators",
    "PreparerActor": "preparers",
}
REST = "Ray and the rest"
_KIND = re.compile(r"ray::(?P<actor>\w+)|(?P<file>raylet|gcs_server|log_monitor|agent|monitor)")


class Usage(NamedTuple):
    kind: str
    cpu_s: float
    rss_mb: float
    pss_mb: float  # shared pages in equal parts


class Census:
    """Finds the processes that come from this one, or carry its mark in their environment."""

    def __init__(self) -> None:
        self.mark = os.environ.setdefault(_MARK, uuid.uuid4().hex)
        self._before: dict[int, Usage] = {}
        self._began = 0.0

    def begin(self) -> None:
        self._began, self._before = time.perf_counter(), dict(self._look())

    def end(self) -> dict[str, dict[str, float]]:
        """By kind: how many processes, megabytes of each and of all, and how many cores they kept busy."""
        seconds = time.perf_counter() - self._began
        after = dict(self._look())
        kinds: dict[str, dict[str, float]] = {}
        for pid, usage in after.items():
            before = self._before.get(pid)
            cpu_s = usage.cpu_s - (before.cpu_s if before else 0.0)
            one = kinds.setdefault(usage.kind, {"n": 0, "cores": 0.0, "rss_mb": 0.0, "pss_mb": 0.0})
            one["n"] += 1
            one["cores"] += cpu_s / seconds
            one["rss_mb"] += usage.rss_mb
            one["pss_mb"] += usage.pss_mb
        return {kind: {name: round(value, 3) for name, value in one.items()} for kind, one in sorted(kinds.items())}

    def _look(self) -> Iterator[tuple[int, Usage]]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    if self._is_ours(entry):
                        yield int(entry.name), _usage(entry)

    def _is_ours(self, entry: Path) -> bool:
        if entry.name == str(os.getpid()):
            return True
        return f"{_MARK}={self.mark}".encode() in (entry / "environ").read_bytes()


def _usage(entry: Path) -> Usage:
    fields = (entry / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
    memory = {
        name: int(value) / 1024
        for name, value in re.findall(r"^(Rss|Pss): +(\d+)", (entry / "smaps_rollup").read_text(), re.M)
    }
    return Usage(_kind(entry), cpu_s, memory.get("Rss", 0.0), memory.get("Pss", 0.0))


def _kind(entry: Path) -> str:
    if entry.name == str(os.getpid()):
        return "driver"
    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    found = _KIND.search(command)
    return (found["actor"] or found["file"]) if found else "other"


class _Stat(NamedTuple):
    """What /proc says of a process: seconds of its own, of what it started and has waited for, and memory."""

    own_s: float
    waited_s: float
    rss_mb: float


class Family:
    """A search's processes by role, from its driver down: processor time and memory, added up from look to look.

    What evaluators and preparers start lives for a second or less. Its time is what its actor has waited for, and what
    still lives; of an actor that is killed, what came after the last look is lost. Memory is resident, pages that
    forked processes share counted for each of them; `pss_mb` has such pages in equal parts.
    """

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self._seen: dict[str, float] = {}  # seconds by process, and by actor of what is below it
        self._cpu_s: dict[str, float] = {}  # by role
        self._memory: dict[str, list[tuple[int, float]]] = {}  # processes and megabytes of a role, at each look
        self._pss_mb: dict[str, float] = {}
        self._began = self._ended = time.perf_counter()

    def begin(self) -> None:
        """Count from now on."""
        self.look()
        self._began = time.perf_counter()
        self._cpu_s.clear()
        self._memory.clear()

    def look(self) -> None:
        """Add up what was spent since the last look."""
        processes = [Process(self._driver, 0, ""), *processes_below(self._driver)]
        stats = {one.pid: stat for one in processes if (stat := _stat_of(one.pid)) is not None}
        roles = roles_of(processes)
        now: dict[str, tuple[int, float]] = {}
        for one in processes:
            if one.pid in stats:
                n, rss_mb = now.get(roles[one.pid], (0, 0.0))
                now[roles[one.pid]] = (n + 1, rss_mb + stats[one.pid].rss_mb)
                if not roles[one.pid].startswith("below "):
                    self._count(f"{one.pid}", roles[one.pid], stats[one.pid].own_s)
        for one in processes:
            if one.command.startswith("ray::") and one.pid in stats:
                below_s = stats[one.pid].waited_s + _living_s(one.pid, processes, stats)
                self._count(f"below {one.pid}", f"below {roles[one.pid]}", below_s)
        for role, one_look in now.items():
            self._memory.setdefault(role, []).append(one_look)
        self._ended = time.perf_counter()

    def weigh(self) -> None:
        """Ask the kernel once for memory in equal parts, which takes it a while."""
        processes = [Process(self._driver, 0, ""), *processes_below(self._driver)]
        self._pss_mb = {}
        for pid, role in roles_of(processes).items():
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._pss_mb[role] = self._pss_mb.get(role, 0.0) + _usage(Path(f"/proc/{pid}")).pss_mb

    def _count(self, name: str, role: str, seconds: float) -> None:
        spent_s = max(0.0, seconds - self._seen.get(name, 0.0))
        self._seen[name] = max(seconds, self._seen.get(name, 0.0))
        self._cpu_s[role] = self._cpu_s.get(role, 0.0) + spent_s

    def figures(self) -> dict[str, dict[str, float]]:
        """By role: processes at the last look, seconds and cores, mean and peak of resident megabytes, all together."""
        found = {}
        seconds = max(self._ended - self._began, 1e-9)
        for role in sorted({*self._memory, *self._cpu_s} - {f"below {REST}"}):
            looks = self._memory.get(role, [(0, 0.0)])
            if not looks[-1][0] and not self._cpu_s.get(role):
                continue  # nothing was ever below it
            found[role] = {
                "n": looks[-1][0],
                "cpu_s": round(self._cpu_s.get(role, 0.0), 2),
                "cores": round(self._cpu_s.get(role, 0.0) / seconds, 3),
                "rss_mb": round(sum(mb for _, mb in looks) / len(looks), 1),
                "peak_rss_mb": round(max(mb for _, mb in looks), 1),
                "pss_mb": round(self._pss_mb.get(role, 0.0), 1),
            }
        return found


def roles_of(processes: list[Process]) -> dict[int, str]:
    """By process id, the driver first: what it is, or which actors it comes from."""
    parents = {one.pid: one.parent for one in processes}
    own = {processes[0].pid: "driver"}
    for one in processes[1:]:
        name = one.command.removeprefix("ray::").partition(".")[0].partition(" ")[0]
        if one.command.startswith("ray::") and name in ROLES:
            own[one.pid] = ROLES[name]
    roles = {}
    for pid in parents:
        above = pid
        while above in parents and above not in own:
            above = parents[above]
        role = own.get(above, REST)
        roles[pid] = role if above == pid else REST if role == "driver" else f"below {role}"
    return roles


def _living_s(root: int, processes: list[Process], stats: dict[int, _Stat]) -> float:
    """Seconds of what lives below a process, and of what that has waited for."""
    seconds, parents = 0.0, {root}
    while children := {one.pid for one in processes if one.parent in parents}:
        seconds += sum(stats[pid].own_s + stats[pid].waited_s for pid in children if pid in stats)
        parents = children
    return seconds


def _stat_of(pid: int) -> _Stat | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own, waited = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    except (OSError, IndexError):  # it ended meanwhile
        return None
    return _Stat(own / TICKS, waited / TICKS, int(fields[21]) * PAGE_MB)

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

TICKS = os.sysconf("SC_CLK_TCK")
_MARK = "EVOLVE_BENCHMARK"
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

"""The process between judge and candidate: starts the candidate, watches it, kills all that is left, and reports.

In a pid namespace it is pid 1, so a candidate can neither kill it nor outlive it. Without one it is a subreaper, to
which every orphaned descendant falls, and kills descendants until there are none.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NoReturn

from evaluators.sandbox import namespaces
from evaluators.sandbox.candidate_process import run_job
from evaluators.sandbox.channel import ZYGOTE_ENDED
from evaluators.sandbox.confinement import confine
from evaluators.sandbox.limits import Limits, ProcessCgroup, disk_use, resident_bytes

TICK_S = 0.05
DISK_TICK_S = 0.25
NICEST = 19
KEPT_OUTPUT_BYTES = 4096
KEPT_REPORT_BYTES = 16 * 1024


class Isolation(StrEnum):
    """What keeps a child from outliving its job."""

    NAMESPACES = "namespaces"
    SUBREAPER = "subreaper"


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the zygote hands it on.

    `control` leads to the judge: the report leaves by it, and its end is the order to stop. `alive_fd` ends with the
    zygote.
    """

    function: str
    deadline_s: float
    workspace: str
    limits: Limits
    control: socket.socket
    channel: socket.socket
    fds: tuple[int, ...]
    alive_fd: int
    cgroup: ProcessCgroup | None


@dataclass(slots=True)
class _Capture:
    """The tail of a stream, and how much came through it."""

    kept_bytes: int
    n_bytes: int = 0
    tail: bytearray = field(default_factory=bytearray)

    def drain(self, fd: int) -> bool:
        """Read what is there; False when that is nothing, or the stream has ended."""
        try:
            piece = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        self.n_bytes += len(piece)
        self.tail += piece
        del self.tail[: -self.kept_bytes]
        return bool(piece)


class Supervisor:
    """Runs one job to its end. `run` is called once, in a process of its own that does nothing else."""

    def __init__(self, job: Job, isolation: Isolation) -> None:
        self._job = job
        self._isolation = isolation
        self._output = _Capture(KEPT_OUTPUT_BYTES)
        self._report = _Capture(KEPT_REPORT_BYTES)
        self._forked_with = resident_bytes(os.getpid())
        self._status = 0
        self._gives_way_at = math.inf

    def run(self) -> dict[str, str]:
        """The report: `kind`, `detail` and `output` of `client.Exit`. When it returns, no process of the job lives."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # pid 1 ignores what it has no handler for
        start = time.monotonic()
        end = start + self._job.deadline_s
        if self._job.limits.patience_s is not None:
            self._gives_way_at = start + self._job.limits.patience_s
        output, output_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        report, report_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        pid = os.fork()
        if pid == 0:
            self._become_candidate(output_end, report_end)
        for fd in (output_end, report_end, *self._job.fds):
            os.close(fd)
        self._job.channel.close()
        namespaces.hide_from_ptrace()
        stopped = self._watch(pid, output, report, end)
        self._end_everything(pid)
        for stream, fd in ((self._output, output), (self._report, report)):
            while stream.drain(fd):
                pass
        kind, detail = stopped or self._verdict()
        return {"kind": kind, "detail": detail, "output": self._output.tail.decode(errors="replace")}

    def _become_candidate(self, output_end: int, report_end: int) -> NoReturn:
        self._job.control.close()
        os.close(self._job.alive_fd)
        has_namespaces = self._isolation is Isolation.NAMESPACES
        if self._job.cgroup and not has_namespaces:
            self._job.cgroup.enter()  # in a pid namespace the supervisor has entered it already
        os.set_blocking(output_end, True)
        os.set_blocking(report_end, True)
        job = self._job
        begin = partial(confine, has_namespaces=has_namespaces)
        run_job(job.function, job.workspace, job.limits, job.channel, job.fds, output_end, report_end, begin)

    def _watch(self, pid: int, output: int, report: int, end: float) -> tuple[str, str] | None:
        """Wait until the candidate has ended (None) or must be stopped (kind and reason)."""
        candidate = os.pidfd_open(pid)
        control, alive = self._job.control.fileno(), self._job.alive_fd
        streams = {output: self._output, report: self._report}
        poll = select.poll()
        for fd in (candidate, control, alive, *streams):
            poll.register(fd, select.POLLIN)
        next_count, next_look = 0.0, 0.0
        while True:
            wait_s = min(TICK_S, max(0.0, end - time.monotonic()))
            ready = {fd for fd, _ in poll.poll(wait_s * 1000)}
            for fd in ready & streams.keys():
                if not streams[fd].drain(fd):
                    poll.unregister(fd)
            if candidate in ready:
                return None
            if control in ready or alive in ready:
                return "killed", "stopped by the judge" if control in ready else ZYGOTE_ENDED
            now = time.monotonic()
            self._reap(pid)
            if now >= end:
                return "timeout", f"still running after {self._job.deadline_s:g} s"
            if self._output.n_bytes > self._job.limits.output_bytes:
                return "killed", f"printed more than {self._job.limits.output_bytes} bytes"
            if now >= next_count:
                next_count = now + TICK_S
                if excess := self._excess():
                    return "killed", excess
                if now >= self._gives_way_at:
                    self._give_way()
            if now >= next_look:
                next_look = now + DISK_TICK_S
                if excess := self._disk_excess():
                    return "killed", excess

    def _excess(self) -> str:
        """Which bound the processes of the job exceed together, or nothing."""
        limits = self._job.limits
        pids = list(self._members())
        if len(pids) > limits.n_processes:
            return f"ran more than {limits.n_processes} processes"
        held = sum(max(0, resident_bytes(pid) - self._forked_with) for pid in pids)
        if held > limits.resident_bytes:
            return f"used more than {limits.resident_bytes / 1024**3:.1f} GiB of memory"
        return ""

    def _give_way(self) -> None:
        """A long computation must not slow short ones down; what it forks later is as nice."""
        for pid in self._members():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, NICEST)

    def _disk_excess(self) -> str:
        limits = self._job.limits
        n_bytes, n_files = disk_use(Path(self._job.workspace), limits.n_files)
        if n_files > limits.n_files:
            return f"wrote more than {limits.n_files} files"
        if n_bytes > limits.disk_bytes:
            return f"wrote more than {limits.disk_bytes / 1024**3:.1f} GiB to disk"
        return ""

    def _members(self) -> Iterable[int]:
        if self._isolation is Isolation.SUBREAPER:
            return namespaces.descendants(os.getpid())
        return (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if entry.name != "1")

    def _end_everything(self, candidate: int) -> None:
        """Kill and reap until no descendant is left."""
        while True:
            self._kill_all()
            if not self._reap(candidate):
                return
            time.sleep(0.001)

    def _reap(self, candidate: int) -> bool:
        """Reap every child that has ended, orphans included. False when no child is left at all."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == candidate:
                    self._status = status
        return False

    def _kill_all(self) -> None:
        if self._isolation is Isolation.NAMESPACES:
            victims: Iterable[int] = (-1,)
        else:
            if self._job.cgroup:
                self._job.cgroup.kill()
            victims = namespaces.descendants(os.getpid())
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _verdict(self) -> tuple[str, str]:
        """Kind and detail of a candidate that ended by itself."""
        status = self._status
        if os.WIFSIGNALED(status):
            return "signal", _signal_name(os.WTERMSIG(status))
        code = os.WEXITSTATUS(status)
        try:
            report = json.loads(self._report.tail)
            kind, detail = str(report["kind"]), str(report["detail"])
        except (ValueError, KeyError, TypeError, RecursionError):
            kind, detail = "", ""
        if kind == "error" or (kind == "ok" and code == 0):
            return kind, detail
        return "exit", detail or f"exited with code {code} before the job returned"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

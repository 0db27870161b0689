"""Baselines: how fast the reference is when run eagerly and compiled, under the flags of the precision class.

The fastest of those that are asked for counts, and its name is said. Its timer stays open in a process of its own for
the whole run, so that candidates are compared with it side by side. What was found is kept on disk per problem,
hardware, precision and versions; a later run compiles the winner only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from db.errors import DeviceError
from db.hashing import content_hash
from db.records import EntryPoint, Hardware, LatencyKind, PrecisionClass, Problem
from evaluators.evaluator import BaselineReport, BaselineTime
from evaluators.gates.speed import median_interval
from evaluators.gpu_lock import GpuLock
from evaluators.gpu_session import GpuSession, SessionLost, Slot
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.client import LEAN_CONTEXT
from evaluators.settings import WAYS, Way
from evaluators.timing import Method, Rotation
from evaluators.versions import software_versions

START_DEADLINE_S = 180.0
COMPILE_DEADLINE_S = 600.0
N_REPLAYS = 7
N_CALL_REPEATS = 5
FORMAT = "2"  # of what is kept on disk, and of how it is timed


def cache_folder() -> Path:
    """Where what outlives a run is kept: $XDG_CACHE_HOME/triton-evolve, by default below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "triton-evolve"


class BaselineProcess:
    """The process that runs the reference. Trusted: it is a plain child of the judge and ends with it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        inductor = cache_folder() / "inductor"
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), root) if p)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "evaluators.baseline_session", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env={"TORCHINDUCTOR_CACHE_DIR": str(inductor), **os.environ, **LEAN_CONTEXT, "PYTHONPATH": path},
            )
        self._channel = Channel(ours)

    def send(self, message: dict[str, Any]) -> None:
        self._channel.send(message)

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        return self._channel.receive(timeout_s)

    def kill(self) -> None:
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-1500:].strip()


class Baseline:
    """The reference of a problem, measured: `report` says how fast, `session` holds the winner's timer open.

    `open` takes the GPU's lock for what it times, not while it compiles; whoever calls the rest holds the lock.
    """

    def __init__(
        self,
        problem: Problem,
        hardware: Hardware,
        precision: PrecisionClass,
        process: BaselineProcess,
        gpu: GpuLock,
        ways: Sequence[Way] = WAYS,
    ) -> None:
        """
        Args:
            ways: of running a reference that is a module.
        """
        self._ways: tuple[str, ...] = tuple(ways) if problem.entry_point is EntryPoint.MODEL else ("seed",)
        self._problem = problem
        self._hardware = hardware
        self._precision = precision
        self._process = process
        self._gpu = gpu
        self._extern_ops: list[str] = []
        self._rotation = Rotation(1, 1, True)

    def open(self, slot: Slot, rotation: Rotation) -> BaselineReport:
        """Measures every way of running the reference, or reads the winner from disk and measures that alone.

        Raises:
            DeviceError: no way works, or the process is lost.
        """
        self._rotation = rotation
        self.session = GpuSession(self._process, slot, deadline_s=COMPILE_DEADLINE_S)
        with contextlib.suppress(OSError):
            greeting = {"precision": self._precision.value, "l2_bytes": self._hardware.l2_bytes, "gpu": self._gpu.name}
            self._process.send({**greeting, **slot.describe()})
        with self._machine_fault():
            self.session.wait_open(START_DEADLINE_S)
            self.report = self._from_disk() or self._measure_all()
        return self.report

    def use(self, method: Method) -> None:
        """Makes the timer one of this method, so that a pair is timed alike."""
        if self.session.method != method:
            with self._machine_fault():
                self.session.time(self._problem.full, self._rotation, 0, method)

    def replay_us(self, n: int) -> list[float]:
        with self._machine_fault():
            return self.session.replay_us(n)

    def call_us(self, n_calls: int, n_repeats: int) -> list[float]:
        with self._machine_fault():
            return self.session.call_us(n_calls, n_repeats)

    def close(self) -> None:
        self._process.kill()

    def _measure_all(self) -> BaselineReport:
        times = [self._time(way) for way in self._ways]
        working = [t for t in times if t.device_us is not None]
        if not working:
            reasons = "; ".join(f"{t.name}: {t.error}" for t in times)
            raise DeviceError(f"no baseline of {self._problem.name} runs: {reasons}", "does the reference fit the GPU?")
        # a pair is timed by one method, so a way that only events can time is compared only with its like
        graphs = [t for t in working if t.method == "graph"] or working
        best = min(graphs, key=lambda t: t.device_us or 0.0)
        if best.name != times[-1].name:
            self._time(best.name)
        report = self._report(best, tuple(times), from_cache=False)
        self._to_disk(report)
        return report

    def _time(self, way: str) -> BaselineTime:
        """Loads one way of running the reference and times it; leaves its timer open."""
        message = {"way": way, "problem": self._problem.model_dump(mode="json")}
        self.session.release()
        answer = self.session.load(message)
        self._extern_ops += [name for name in answer.get("extern_ops", []) if name not in self._extern_ops]
        if answer.get("error"):
            return BaselineTime.model_validate({"name": way, "error": answer["error"]})
        with self._gpu:
            self.session.slot.spread(self._problem.full)
            self.session.time(self._problem.full, self._rotation, 0)
            device = median_interval(self.session.replay_us(N_REPLAYS))
            call = median_interval(self.session.call_us(n_calls_for(device.median), N_CALL_REPEATS))
        fields = {"device_us": device.median, "low_us": device.low, "high_us": device.high, "call_us": call.median}
        return BaselineTime.model_validate({"name": way, "method": self.session.method, **fields})

    def _report(self, best: BaselineTime, times: tuple[BaselineTime, ...], *, from_cache: bool) -> BaselineReport:
        assert best.device_us is not None
        return BaselineReport(
            name=best.name,
            kind=LatencyKind.MEASURED,
            method=best.method,
            device_us=best.device_us,
            call_us=best.call_us,
            precision=self._precision,
            times=times,
            extern_ops=tuple(sorted(self._extern_ops)),
            versions=software_versions(),
            from_cache=from_cache,
        )

    def _from_disk(self) -> BaselineReport | None:
        try:
            kept = BaselineReport.model_validate_json(self._file().read_text())
        except (OSError, ValueError):
            return None
        self._extern_ops = list(kept.extern_ops)
        again = self._time(kept.name)
        if again.device_us is None:
            return None
        times = tuple(again if t.name == again.name else t for t in kept.times)
        return self._report(again, times, from_cache=True)

    def _to_disk(self, report: BaselineReport) -> None:
        with contextlib.suppress(OSError):  # a folder that cannot be written costs time, nothing else
            self._file().parent.mkdir(parents=True, exist_ok=True)
            part = self._file().with_suffix(f".{os.getpid()}")
            part.write_text(report.model_dump_json(indent=1))
            part.replace(self._file())

    def _file(self) -> Path:
        versions = [f"{name}={version}" for name, version in sorted(software_versions().items())]
        fewer = self._ways if set(self._ways) < set(WAYS) else ()
        parts = (FORMAT, *fewer, self._problem.problem_id, self._hardware.hardware_id, self._precision.value, *versions)
        return cache_folder() / "baselines" / f"{content_hash(*parts)}.json"

    @contextlib.contextmanager
    def _machine_fault(self) -> Any:
        try:
            yield
        except SessionLost as lost:
            words = self._process.last_words()
            raise DeviceError(
                f"the baseline's process is lost: {lost}\n{words}".strip(), "see `evolve doctor`"
            ) from lost


def n_calls_for(device_us: float) -> int:
    """How many calls one measurement of call latency makes: about 3 ms of them, at least 4 and at most 60."""
    return int(min(60, max(4, 3000 // max(device_us, 1.0))))

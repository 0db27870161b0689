"""Evaluators that wait and answer from a seeded table, for benchmarks of everything around them.

One process plays many GPUs, because a process for each would need the machine that is simulated. Crew, judge, search,
islands and archive are those of a run and see as many evaluators as there are GPUs; a GPU judges one candidate at a
time, and says how long it stood ready before its next one came.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import ray

from db.hashing import content_hash
from db.measures import TIERS
from db.records import (
    Candidate,
    Capture,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Launch,
    LaunchTraffic,
    Outcome,
    Profile,
    Verdict,
)
from evaluators.evaluator import Prepared
from evaluators.hardware import load_hardware
from evaluators.report import BaselineReport, EvaluatorReport

BASELINE_US = 500.0
SLOWEST_US = 2000.0
N_ENTRIES = 10_007
MAX_AT_ONCE = 100_000
_KERNEL = re.compile(r"@triton\.jit\s+def (\w+)")
TRAFFIC = LaunchTraffic(
    load_bytes=1e9, store_bytes=1e9, dram_read_bytes=1e9, dram_write_bytes=1e9, flops={"fp32": 1e9, "sfu": 2e8}
)

HARDWARE = load_hardware("h100")
REPORT = EvaluatorReport(
    hardware=HARDWARE,
    baseline=BaselineReport(name="simulated", kind=LatencyKind.MODELLED, method="model", device_us=BASELINE_US),
    versions={"judge": "simulated"},
    isolation="none",
)


ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers of a cluster cannot import benchmarks


class LatencyTable:
    """Latencies between 250 and 2000 us, drawn once; a program's id says which one is its own."""

    def __init__(self, rng_seed: int) -> None:
        rng = random.Random(rng_seed)
        self._entries = [SLOWEST_US / 2 ** rng.uniform(0.0, 3.0) for _ in range(N_ENTRIES)]

    def verdict(self, candidate: Candidate, fingerprint: str) -> Verdict:
        number = int(candidate.program_id, 16)
        latency_us = self._entries[number % N_ENTRIES]
        latency = Latency(
            kind=LatencyKind.MODELLED, method="model", device_us=latency_us, low_us=latency_us, high_us=latency_us,
            baseline_us=BASELINE_US, baseline_name="simulated",
        )  # fmt: skip
        return Verdict(
            candidate_id=candidate.candidate_id,
            run_id=candidate.run_id,
            problem_id=candidate.problem_id,
            program_id=candidate.program_id,
            hardware_id=HARDWARE.hardware_id,
            outcome=Outcome.CORRECT,
            gates=tuple(GateResult(gate=gate, passed=True) for gate in Gate),
            latency=latency,
            profile=Profile(source="none"),
            tier=TIERS[number % len(TIERS)],
            fingerprint=fingerprint,
            captures=(capture_of(candidate),),
            versions=REPORT.versions,
        )


def prepared_at_once(candidate: Candidate) -> Prepared:
    return Prepared(candidate=candidate, fingerprint=content_hash("simulated", candidate.program_id))


def capture_of(candidate: Candidate) -> Capture:
    """As long as that of a program of one kernel, and with its name: operators look for it."""
    named = _KERNEL.search(candidate.source)
    launch = Launch(
        kernel=named[1] if named else "kernel", grid=(4096, 1, 1), num_warps=8, shared_bytes=4096,
        text_hash=candidate.program_id, binding_hash=candidate.program_id, n_registers=64,
        constexprs={"BLOCK": 1024}, traffic=TRAFFIC,
    )  # fmt: skip
    return Capture(workload="full", target=HARDWARE.target, triton_version="none", launches=(launch,))


class SimulatedGpu:
    """One GPU: busy with one candidate for a set time, then ready for the next."""

    def __init__(self, takes_s: float, table: LatencyTable) -> None:
        self._takes_s = takes_s
        self._table = table
        self._lock = asyncio.Lock()
        self._ready_at: float | None = None
        self.waits_s: list[float] = []  # between the end of one candidate and the begin of the next

    async def evaluate(self, prepared: Prepared) -> Verdict:
        async with self._lock:
            begin = time.perf_counter()
            if self._ready_at is not None:
                self.waits_s.append(begin - self._ready_at)
            await asyncio.sleep(self._takes_s)
            self._ready_at = time.perf_counter()
        return self._table.verdict(prepared.candidate, prepared.fingerprint)


@ray.remote(num_cpus=0, max_concurrency=MAX_AT_ONCE)
class SimulatedGpus:
    """Many GPUs, by number, and the preparers before them, who answer at once."""

    def __init__(self, n: int, takes_s: float, rng_seed: int) -> None:
        table = LatencyTable(rng_seed)
        self._gpus = [SimulatedGpu(takes_s, table) for _ in range(n)]

    async def call(self, index: int, method: str, *arguments: Any) -> Any:
        match method:
            case "report":
                return REPORT
            case "prepare":
                return prepared_at_once(arguments[0])
            case "evaluate":
                return await self._gpus[index].evaluate(arguments[0])
        return None

    async def close(self) -> None:
        """Nothing to put in order."""

    async def take_waits(self) -> list[float]:
        """The waits of all GPUs since the last time, in seconds."""
        waits = [wait for gpu in self._gpus for wait in gpu.waits_s]
        for gpu in self._gpus:
            gpu.waits_s.clear()
        return waits


@ray.remote(num_gpus=1, max_restarts=8, max_concurrency=MAX_AT_ONCE)
class SimulatedGpuActor:
    """One GPU in a process of its own, placed and restarted as an evaluator is."""

    def __init__(self, takes_s: float, rng_seed: int) -> None:
        self._gpu = SimulatedGpu(takes_s, LatencyTable(rng_seed))

    async def node_id(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    async def report(self) -> EvaluatorReport:
        return REPORT

    async def evaluate(self, prepared: Prepared) -> Verdict:
        return await self._gpu.evaluate(prepared)

    async def close(self) -> None:
        """Nothing to put in order."""


@ray.remote(num_cpus=0, max_restarts=8, max_concurrency=MAX_AT_ONCE)
class SimulatedPreparer:
    """Answers at once, from a process of its own."""

    async def prepare(self, candidate: Candidate, report: EvaluatorReport) -> Prepared:  # noqa: ARG002 - as a preparer
        return prepared_at_once(candidate)

    async def close(self) -> None:
        """Nothing to put in order."""


class SimulatedEvaluator:
    """One of the GPUs of an actor, called as an actor of its own would be: `await gpu.evaluate.remote(prepared)`."""

    def __init__(self, actor: Any, index: int) -> None:
        self._actor = actor
        self._index = index

    def __getattr__(self, method: str) -> _Method:
        return _Method(self._actor, self._index, method)


class _Method:
    def __init__(self, actor: Any, index: int, method: str) -> None:
        self._named = (index, method)
        self._actor = actor

    def remote(self, *arguments: Any) -> Any:
        return self._actor.call.remote(*self._named, *arguments)


class Timed:
    """An actor whose answers are timed on the way: seconds of each call, by method."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.seconds: dict[str, list[float]] = {}

    def __getattr__(self, method: str) -> _TimedMethod:
        return _TimedMethod(getattr(self._actor, method), self.seconds.setdefault(method, []))


class _TimedMethod:
    def __init__(self, method: Any, seconds: list[float]) -> None:
        self._method = method
        self._seconds = seconds

    def remote(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        return self._call(self._method.remote(*arguments, **named))

    async def _call(self, reference: Any) -> Any:
        begin = time.perf_counter()
        try:
            return await reference
        finally:
            self._seconds.append(time.perf_counter() - begin)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0 to 1) of the others lie; 0 where there are none."""
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, round(share * len(in_order)))] if in_order else 0.0

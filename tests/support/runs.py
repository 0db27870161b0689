"""A search that never ran: plausible records of one problem, for tests of reports, queries and commands.

Deterministic under `rng_seed`. Sources are real Triton softmax kernels that differ in their knobs, so that diffs read
like diffs; latencies come from a small made-up cost function, so that the search gets faster as searches do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from db.measures import Tier, classify
from db.profile import Bottleneck, BottleneckReport, KernelKind, PerformanceState
from db.records import (
    Candidate,
    DeviceKind,
    EntryPoint,
    Evaluation,
    Gate,
    GateResult,
    Hardware,
    Latency,
    LatencyKind,
    Lineage,
    Outcome,
    PrecisionClass,
    Problem,
    Profile,
    Run,
    RunStatus,
    Verdict,
    Workload,
)

STARTED_AT = 1_800_000_000.0
BASELINE_US = 781.6
FLOOR_US = 499.0

REFERENCE = """
import torch
import torch.nn as nn

batch = 4096
dim = 65536


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * n_cols
    y_row = y_ptr + row * n_cols
    m = float("-inf")
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf"){load})
        m_new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.{exp}((m - m_new){scale}) + tl.sum(tl.{exp}((x - m_new){scale}), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf"))
        tl.store(y_row + cols, tl.{exp}((x - m){scale}) / s, mask=cols < n_cols{store})


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        grid = (x.shape[0],)
        softmax_kernel[grid](x, y, x.shape[1], BLOCK={block}, num_warps={warps}, num_stages={stages})
        return y
"""


@dataclass(frozen=True)
class Knobs:
    """What the made-up operators turn."""

    block: int = 1024
    warps: int = 4
    stages: int = 1
    load: str = ""
    store: str = ""
    exp: str = "exp"

    def source(self) -> str:
        scale = " * 1.4426950408889634" if self.exp == "exp2" else ""
        return KERNEL.format(scale=scale, **vars(self))

    def latency_us(self) -> float:
        us = FLOOR_US * 1.02
        us *= 1 + 0.28 * abs((self.block / 8192) - 1) ** 0.7 + 0.10 * abs(self.warps / 16 - 1)
        us *= 1.0 if self.load else 1.07
        us *= 1.0 if self.store else 1.02
        return us * {1: 1.06, 2: 1.02}.get(self.stages, 1.0) * (1.0 if self.exp == "exp2" else 1.04)


TECHNIQUES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tile_size": ("block", (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)),
    "num_warps": ("warps", (1, 2, 4, 8, 16, 32)),
    "num_stages": ("stages", (1, 2, 3, 4)),
    "eviction_policy": ("load", ("", ', eviction_policy="evict_last"', ', eviction_policy="evict_first"')),
    "streaming_store": ("store", ("", ', cache_modifier=".cs"')),
    "exp2": ("exp", ("exp", "exp2")),
}


def make_problem(name: str = "softmax", dim: int = 65536) -> Problem:
    """A KernelBench-style problem with a full and a small workload and one seed."""
    return Problem(
        name=name,
        kind="kernelbench",
        source=REFERENCE,
        workloads=(
            Workload(name="full", role="full", sizes={"batch": 4096, "dim": dim}),
            Workload(name="small", role="small", sizes={"batch": 4, "dim": 512}),
        ),
        seeds=(Knobs().source(),),
    )


def make_hardware(name: str = "NVIDIA H200", target: str = "h200") -> Hardware:
    return Hardware(
        name=name,
        target=target,
        compute_capability=(9, 0),
        n_sms=132,
        dram_gb_s=4300,
        l2_bytes=60 * 2**20,
        l2_gb_s=5500,
        dram_bytes=141 * 10**9,
        tflops={"fp32": 67, "tf32": 495, "fp16": 989, "bf16": 989, "int8": 1979},
        shared_bytes_per_sm=228 * 1024,
        shared_bytes_per_block=227 * 1024,
        sm_clock_ghz=1.98,
    )


def make_run(problem: Problem, *, run_id: str = "r1a2b3c4", kind: LatencyKind = LatencyKind.MEASURED) -> Run:
    measured = kind is LatencyKind.MEASURED
    return Run(
        run_id=run_id,
        problem_id=problem.problem_id,
        rng_seed=7,
        device=DeviceKind.CUDA if measured else DeviceKind.CPU,
        hardware=make_hardware() if measured else make_hardware("H100", "h100"),
        precision=PrecisionClass.REFERENCE,
        latency_kind=kind,
        config={
            "islands": 4,
            "strategy": "map-elites",
            "budget": {"evaluations": 240, "seconds": 120.0},
            "rng_seed": 7,
        },
        versions={"python": "3.12.3", "torch": "2.13.0+cu130", "triton": "3.7.1", "driver": "580.159"},
        status=RunStatus.FINISHED,
        started_at=STARTED_AT,
        finished_at=STARTED_AT + 118.4,
        stop_reason="240 evaluations",
    )


@dataclass
class _Search:
    """State of the made-up search: who is alive on each island, and what was already proposed."""

    problem: Problem
    run: Run
    rng: random.Random
    alive: dict[int, list[tuple[Knobs, Verdict]]] = field(default_factory=dict)
    seen: dict[str, Verdict] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def step(self, island: int) -> Evaluation:
        n = self.counts.get(island, 0)
        self.counts[island] = n + 1
        knobs, lineage = self._propose(island, n)
        candidate = Candidate(
            candidate_id=f"{self.run.run_id}-{island}-{n:06d}",
            run_id=self.run.run_id,
            problem_id=self.problem.problem_id,
            island=island,
            source=knobs.source(),
            entry_point=EntryPoint.MODEL,
            lineage=lineage,
        )
        verdict = self._judge(candidate, knobs)
        if verdict.is_correct:
            self.alive.setdefault(island, []).append((knobs, verdict))
        return Evaluation(candidate=candidate, verdict=verdict)

    def _propose(self, island: int, n: int) -> tuple[Knobs, Lineage]:
        if n == 0:
            return Knobs(), Lineage(operator="seed", technique="seed", detail="the seed of the problem")
        pool = sorted(self.alive.get(island, []), key=lambda pair: _us(pair[1]))[:6]
        if not pool:
            return Knobs(block=512), Lineage(operator="seed", technique="seed")
        if len(pool) > 1 and self.rng.random() < 0.12:
            return self._crossover(pool)
        parent, verdict = self.rng.choice(pool)
        technique = self.rng.choice(sorted(TECHNIQUES))
        name, values = TECHNIQUES[technique]
        value = self.rng.choice([v for v in values if v != getattr(parent, name)])
        detail = f"{name} {getattr(parent, name) or 'none'} -> {value or 'none'}"
        child = replace(parent, **{name: value})
        return child, Lineage(operator="retune", technique=technique, parents=(verdict.program_id,), detail=detail)

    def _crossover(self, pool: Sequence[tuple[Knobs, Verdict]]) -> tuple[Knobs, Lineage]:
        (one, first), (other, second) = self.rng.sample(list(pool), 2)
        child = replace(one, warps=other.warps, stages=other.stages)
        parents = (first.program_id, second.program_id)
        detail = f"num_warps, num_stages of {second.program_id[:8]}"
        return child, Lineage(operator="crossover", technique="crossover", parents=parents, detail=detail)

    def _judge(self, candidate: Candidate, knobs: Knobs) -> Verdict:
        earlier = self.seen.get(candidate.program_id)
        if earlier is not None:
            return earlier.model_copy(
                update={"candidate_id": candidate.candidate_id, "duplicate_of": candidate.program_id, "seconds": {}}
            )
        verdict = self._fresh(candidate, knobs)
        self.seen[candidate.program_id] = verdict
        return verdict

    def _fresh(self, candidate: Candidate, knobs: Knobs) -> Verdict:
        base = {
            "candidate_id": candidate.candidate_id,
            "run_id": self.run.run_id,
            "problem_id": self.problem.problem_id,
            "program_id": candidate.program_id,
            "hardware_id": self.run.hardware.hardware_id,
            "fingerprint": candidate.program_id,
            "versions": self.run.versions,
            "seconds": {"prepare": 0.61, "correctness": 0.12, "timing": 0.05},
        }
        refusal = self._refusal(knobs, is_seed=candidate.lineage.operator == "seed")
        if refusal is not None:
            gate, reason = refusal
            passed = [GateResult(gate=g, passed=True, seconds=0.1) for g in list(Gate)[: list(Gate).index(gate)]]
            gates = (*passed, GateResult(gate=gate, passed=False, reason=reason))
            return Verdict(outcome=Outcome.FAILED, gates=gates, **base)
        return self._correct(knobs, base)

    def _refusal(self, knobs: Knobs, *, is_seed: bool) -> tuple[Gate, str] | None:
        if is_seed:
            return None
        if knobs.block == 32768 and knobs.warps <= 2:
            return Gate.STATIC, f"out of resource: shared memory, required {knobs.stages * 131080}, limit 232448"
        if knobs.block == 256 and self.rng.random() < 0.6:
            error = self.rng.uniform(0.01, 0.9)
            return Gate.CORRECTNESS, f"output 0 differs from the reference: largest error {error:.4g} at (12, 1023)"
        if self.rng.random() < 0.03:
            return Gate.INTEGRITY, "input 0 was changed by the program"
        return None

    def _correct(self, knobs: Knobs, base: dict[str, Any]) -> Verdict:
        measured = self.run.latency_kind is LatencyKind.MEASURED
        us = knobs.latency_us() * (self.rng.gauss(1, 0.003) if measured else 1)
        spread = 0.004 if measured else 0
        latency = Latency(
            kind=self.run.latency_kind,
            method="graph" if measured else "model",
            device_us=us,
            low_us=us * (1 - spread),
            high_us=us * (1 + spread),
            baseline_us=BASELINE_US,
            baseline_name="compile" if measured else "seed",
            call_us=us + 11.0 if measured else None,
            baseline_call_us=BASELINE_US + 14.0 if measured else None,
            floor_us=FLOOR_US,
        )
        memory = min(100.0, 100 * FLOOR_US / us)
        compute = 22.0 + knobs.warps
        tier = classify(compute, memory)
        wins = us * 1.005 < BASELINE_US
        speed = GateResult(gate=Gate.SPEED, passed=wins, reason="" if wins else "not faster than compile by the margin")
        passed = [Gate.STATIC, Gate.CORRECTNESS, *([Gate.MODEL] if us < BASELINE_US * 0.8 else []), Gate.INTEGRITY]
        profile = Profile(
            source="compiled",
            compute_sol_pct=compute,
            memory_sol_pct=memory,
            n_registers=40,
            spill_bytes=0,
            occupancy=0.75,
            occupancy_limiter="registers",
        )
        gates = (*(GateResult(gate=g, passed=True, seconds=0.1) for g in passed), speed)
        limit = Bottleneck.DRAM_BANDWIDTH if memory > 70 else Bottleneck.MEMORY_LATENCY
        return Verdict(
            outcome=Outcome.CORRECT,
            gates=gates,
            error_ratio=1.4,
            latency=latency,
            profile=profile,
            tier=Tier(tier),
            bottleneck=BottleneckReport(
                tier=Tier(tier),
                source="compiled",
                state=PerformanceState(primary=limit, limiter="registers", kernel_kind=KernelKind.ROW),
                limit=f"memory at {memory:.0f}% of its speed of light",
                roofline_efficiency=memory / 100,
            ),
            replaces_baseline=wins,
            **base,
        )


def _us(verdict: Verdict) -> float:
    assert verdict.latency is not None
    return verdict.latency.device_us


def make_evaluations(
    problem: Problem, run: Run, *, n: int = 240, islands: int = 4, rng_seed: int = 7
) -> list[Evaluation]:
    """`n` evaluations over `islands` islands in turn: failures, duplicates, crossovers and a falling latency."""
    search = _Search(problem, run, random.Random(rng_seed))
    made = [search.step(i % islands) for i in range(n)]
    first, last = 9.0, 118.4  # seconds since the start of the run
    times = [run.started_at + first + (last - first) * i / max(1, n - 1) for i in range(n)]
    return [e.model_copy(update={"created_at": at}) for e, at in zip(made, times, strict=True)]


def fill_archive(
    path: Path,
    *,
    n: int = 240,
    islands: int = 4,
    rng_seed: int = 7,
    kind: LatencyKind = LatencyKind.MEASURED,
    run_id: str = "r1a2b3c4",
) -> tuple[Problem, Run, list[Evaluation]]:
    """Writes a made-up run into the archive at `path` (made if need be) and closes it."""
    from db.archive import ProgramArchive

    problem = make_problem()
    run = make_run(problem, run_id=run_id, kind=kind)
    evaluations = make_evaluations(problem, run, n=n, islands=islands, rng_seed=rng_seed)
    archive = ProgramArchive.open(path)
    archive.add_problem(problem)
    archive.add_run(run)
    archive.insert(evaluations)
    archive.close()
    return problem, run, evaluations


def one_evaluation(
    problem: Problem,
    run: Run,
    n: int,
    us: float | None,
    *,
    island: int = 0,
    source: str | None = None,
    technique: str = "tile_size",
    parents: Sequence[Evaluation] = (),
    refused: tuple[Gate, str] = (Gate.CORRECTNESS, "wrong"),
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    duplicate_of: str = "",
    spread: float = 0.0,
    baseline_us: float = 100.0,
    memory_pct: float = 70.0,
    wins: bool | None = None,
    operator: str = "",
) -> Evaluation:
    """One evaluation to order: correct at `us` microseconds, or refused by a gate where `us` is None."""
    candidate = Candidate(
        candidate_id=f"{run.run_id}-{island}-{n:06d}",
        run_id=run.run_id,
        problem_id=problem.problem_id,
        island=island,
        source=source or f"VALUE = {n}",
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(
            operator=operator or ("retune" if parents else "seed"),
            technique=technique if parents else "",
            parents=tuple(p.candidate.program_id for p in parents),
        ),
    )
    base: dict[str, Any] = {
        "candidate_id": candidate.candidate_id,
        "run_id": run.run_id,
        "problem_id": problem.problem_id,
        "program_id": candidate.program_id,
        "hardware_id": run.hardware.hardware_id,
        "precision": precision,
        "duplicate_of": duplicate_of,
    }
    if us is None:
        gate, reason = refused
        gates = (GateResult(gate=gate, passed=False, reason=reason),)
        failed = Verdict(outcome=Outcome.FAILED, gates=gates, **base)
        return Evaluation(candidate=candidate, verdict=failed, created_at=run.started_at + n)
    latency = Latency(
        kind=run.latency_kind,
        method="graph" if run.latency_kind is LatencyKind.MEASURED else "model",
        device_us=us,
        low_us=us * (1 - spread),
        high_us=us * (1 + spread),
        baseline_us=baseline_us,
        baseline_name="compile",
    )
    wins = us < baseline_us if wins is None else wins
    speed = GateResult(gate=Gate.SPEED, passed=wins, reason="" if wins else "slower")
    verdict = Verdict(
        outcome=Outcome.CORRECT,
        gates=(GateResult(gate=Gate.CORRECTNESS, passed=True), speed),
        latency=latency,
        tier=classify(10.0, memory_pct),
        replaces_baseline=wins,
        **base,
    )
    return Evaluation(candidate=candidate, verdict=verdict, created_at=run.started_at + n)

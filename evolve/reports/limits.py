"""What limited the best program's ancestors, and which technique removed it: facts for the report, no markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.profile import Bottleneck, BottleneckReport, Counters, Profile
from db.records import Evaluation

NAMES = {
    Bottleneck.DRAM_BANDWIDTH: "DRAM bandwidth",
    Bottleneck.CACHE_BANDWIDTH: "cache bandwidth",
    Bottleneck.MEMORY_LATENCY: "memory latency",
    Bottleneck.TENSOR_CORES: "tensor cores",
    Bottleneck.ARITHMETIC: "arithmetic",
    Bottleneck.SYNCHRONISATION: "synchronisation",
    Bottleneck.PARALLELISM: "too little parallelism",
    Bottleneck.SPILLS: "register spills",
    Bottleneck.LAUNCHES: "launches",
}
SOURCES = {"ncu": "Nsight Compute", "compiled": "the compiled kernel", "none": "its latency alone"}


@dataclass(frozen=True)
class Limit:
    """What limited one program. `removed` and `left` compare it with the step before: what its technique did away with,
    and what limits it now instead; only where both were seen by the same eyes."""

    primary: str
    secondary: str
    sentence: str
    source: str
    figures: tuple[str, ...]  # "memory 73%", "occupancy 19% (registers)"
    removed: str
    left: str


@dataclass(frozen=True)
class CeilingPoint:
    """One program between its ceilings, in percent of the speed of light. `step` counts ancestors from 1; 0 is none."""

    program_id: str
    memory_pct: float
    compute_pct: float
    latency_us: float
    step: int
    source: str


def limits_of(chain: Sequence[Evaluation]) -> list[Limit | None]:
    """One limit for each program of a lineage, oldest first; None where nobody knows any."""
    reports = [e.verdict.bottleneck for e in chain]
    before = [None, *reports][: len(reports)]
    return [_limit(e.verdict.profile, own, parent) for e, own, parent in zip(chain, reports, before, strict=True)]


def _limit(profile: Profile | None, report: BottleneckReport | None, parent: BottleneckReport | None) -> Limit | None:
    if report is None:
        return None
    state = report.state
    moved = parent is not None and parent.source == report.source and parent.state.primary is not state.primary
    return Limit(
        primary=NAMES[state.primary],
        secondary=NAMES[state.secondary] if state.secondary else "",
        sentence=report.limit,
        source=SOURCES[report.source],
        figures=tuple(figures_of(profile)) if profile else (),
        removed=NAMES[parent.state.primary] if parent and moved else "",
        left=NAMES[state.primary] if moved else "",
    )


def figures_of(counters: Counters) -> list[str]:
    """The figures of a profile that say most, in words."""
    found = [f"memory {counters.memory_sol_pct:.0f}%", f"compute {counters.compute_sol_pct:.0f}%"]
    if counters.dram_gb_s:
        found.append(f"DRAM {counters.dram_gb_s / 1e3:.2f} TB/s")
    occupancy = counters.achieved_occupancy if counters.achieved_occupancy is not None else counters.occupancy
    if occupancy is not None:
        limiter = f" ({counters.occupancy_limiter})" if counters.occupancy_limiter else ""
        found.append(f"occupancy {100 * occupancy:.0f}%{limiter}")
    if counters.n_registers:
        found.append(f"{counters.n_registers} registers")
    if counters.spill_bytes:
        found.append(f"{counters.spill_bytes} bytes spilled")
    if counters.stalls:
        stall = counters.stalls[0]
        found.append(f"{100 * stall.share:.0f}% of the waiting is {stall.reason.replace('_', ' ')}")
    return found


def ceiling_points(correct: Sequence[Evaluation], chain: Sequence[Evaluation]) -> list[CeilingPoint]:
    """Programs with a profile: the ancestors in order, after all others."""
    steps = {e.candidate.program_id: n for n, e in enumerate(chain, start=1)}
    others = {e.candidate.program_id: e for e in correct if e.candidate.program_id not in steps}
    both = [*others.values(), *chain]
    return [_point(e, steps.get(e.candidate.program_id, 0)) for e in both if e.verdict.profile and e.verdict.latency]


def _point(evaluation: Evaluation, step: int) -> CeilingPoint:
    profile, latency = evaluation.verdict.profile, evaluation.verdict.latency
    assert profile is not None and latency is not None
    return CeilingPoint(
        program_id=evaluation.candidate.program_id,
        memory_pct=profile.memory_sol_pct,
        compute_pct=profile.compute_sol_pct,
        latency_us=latency.device_us,
        step=step,
        source=profile.source,
    )

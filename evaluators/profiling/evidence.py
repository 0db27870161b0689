"""A diagnosis in words: the limit in one sentence, and the figures that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from db.measures import Tier
from db.profile import Bottleneck, Evidence, Profile
from evaluators.profiling.scores import Facts
from evaluators.profiling.thresholds import FEW_WARPS

N_STALLS = 3


class _Figure(NamedTuple):
    field: str
    unit: str
    meaning: str
    scale: float = 1.0


_FIGURES = (
    _Figure("memory_sol_pct", "%", "speed of light of memory: the busiest of DRAM, caches and their ports"),
    _Figure("compute_sol_pct", "%", "speed of light of the SMs: the busiest of their pipes"),
    _Figure("duration_us", "us", "time on the GPU"),
    _Figure("dram_pct", "%", "of the peak bandwidth of DRAM"),
    _Figure("dram_gb_s", "GB/s", "read from DRAM and written to it"),
    _Figure("dram_read_bytes", "MB", "read from DRAM", 1e-6),
    _Figure("dram_write_bytes", "MB", "written to DRAM", 1e-6),
    _Figure("l2_pct", "%", "of the peak throughput of L2"),
    _Figure("l1_pct", "%", "of the peak throughput of L1 and shared memory"),
    _Figure("l2_hit_pct", "%", "of the sectors asked of L2 were there"),
    _Figure("l1_hit_pct", "%", "of the sectors asked of L1 were there"),
    _Figure("tensor_pct", "%", "of the cycles have an active tensor pipe"),
    _Figure("issue_pct", "%", "of the cycles of a scheduler issue an instruction"),
    _Figure("occupancy", "%", "of the warps that an SM can hold fit beside each other", 100.0),
    _Figure("achieved_occupancy", "%", "of the warps that an SM can hold were there on average", 100.0),
    _Figure("waves_per_sm", "waves", "of programs, one after the other, that an SM gets"),
    _Figure("n_registers", "registers", "for each thread"),
    _Figure("spill_bytes", "bytes", "of each thread's registers moved to local memory"),
    _Figure("shared_bytes", "bytes", "of shared memory for each program"),
)


def evidence_for(facts: Facts) -> tuple[Evidence, ...]:
    """Every figure of a profile that somebody read, with its meaning; then the longest waits."""
    profile = facts.profile
    found = [
        Evidence(metric=f.field, value=round(value * f.scale, 3), unit=f.unit, meaning=f.meaning)
        for f in _FIGURES
        if (value := getattr(profile, f.field)) is not None
    ]
    found += [
        Evidence(
            metric=f"stall_{stall.reason}",
            value=round(100 * stall.share, 1),
            unit="%",
            meaning=f"of the cycles between two instructions of a warp ({stall.cycles:.1f} cycles)",
        )
        for stall in profile.stalls[:N_STALLS]
    ]
    if facts.n_operations:
        meaning = "kernels and operations of torch in one forward"
        found.append(Evidence(metric="launches", value=facts.n_operations, unit="", meaning=meaning))
    return tuple(found)


def limit_of(facts: Facts, primary: Bottleneck, secondary: Bottleneck | None, tier: Tier) -> str:
    """What limits the program, in one sentence."""
    first = f"{_lead(facts.profile, tier)} {_BECAUSE[primary](facts)}"
    return f"{first}; after that, {secondary.replace('_', ' ')}." if secondary else f"{first}."


def _lead(profile: Profile, tier: Tier) -> str:
    memory, compute = f"{profile.memory_sol_pct:.0f}%", f"{profile.compute_sol_pct:.0f}%"
    match tier:
        case Tier.NEAR_OPTIMAL:
            return f"Near the limit of the hardware (memory {memory}, SMs {compute} of speed of light):"
        case Tier.MEMORY_BOUND:
            return f"Bound by memory ({memory} of speed of light, SMs {compute}):"
        case Tier.COMPUTE_BOUND:
            return f"Bound by the SMs ({compute} of speed of light, memory {memory}):"
        case _:
            return f"Nothing is well used (memory {memory}, SMs {compute} of speed of light):"


def _dram(facts: Facts) -> str:
    rate = f" ({facts.profile.dram_gb_s:.0f} GB/s)" if facts.profile.dram_gb_s else ""
    return f"the bandwidth of DRAM{rate} sets the pace, so only fewer bytes make it faster"


def _cache(facts: Facts) -> str:
    l1, l2 = facts.profile.l1_pct or 0.0, facts.profile.l2_pct or 0.0
    which, value = ("L1 and shared memory", l1) if l1 > l2 else ("L2", l2)
    return f"{which} ({value:.0f}% of its throughput) is busier than DRAM, so data should be reused nearer to the SMs"


def _memory_latency(facts: Facts) -> str:
    profile = facts.profile
    warps = profile.achieved_occupancy if profile.achieved_occupancy is not None else profile.occupancy
    if warps is None or warps >= FEW_WARPS:
        return "warps wait for their loads"
    return f"warps wait for their loads, and {100 * warps:.0f}% of the warps are too few to cover for them"


def _tensor(facts: Facts) -> str:
    tensor = facts.profile.tensor_pct
    return "the tensor cores are the busiest unit" + (f" ({tensor:.0f}% of the cycles)" if tensor else "")


def _synchronisation(facts: Facts) -> str:
    shares = {stall.reason: stall.share for stall in facts.profile.stalls}
    share = shares.get("barrier", 0.0) + shares.get("short_scoreboard", 0.0)
    much = f" ({100 * share:.0f}% of their cycles)" if share else ""
    return f"warps wait for each other at barriers and in shared memory{much}"


def _parallelism(facts: Facts) -> str:
    waves = facts.profile.waves_per_sm
    if waves is None:
        return "the grid has too few programs for the GPU"
    if waves < 1:
        return f"the grid fills only {100 * waves:.0f}% of one wave of the GPU"
    return f"the last of {waves:.1f} waves leaves SMs without work"


def _launches(facts: Facts) -> str:
    return f"starting {facts.n_operations} kernels takes much of the time"


def _spills(facts: Facts) -> str:
    spilled = facts.profile.spill_bytes or 0
    return f"{spilled} bytes of registers of each thread spill to local memory"


_BECAUSE: dict[Bottleneck, Callable[[Facts], str]] = {
    Bottleneck.DRAM_BANDWIDTH: _dram,
    Bottleneck.CACHE_BANDWIDTH: _cache,
    Bottleneck.MEMORY_LATENCY: _memory_latency,
    Bottleneck.TENSOR_CORES: _tensor,
    Bottleneck.ARITHMETIC: lambda _: "instructions on single elements keep the SMs busy",
    Bottleneck.SYNCHRONISATION: _synchronisation,
    Bottleneck.PARALLELISM: _parallelism,
    Bottleneck.SPILLS: _spills,
    Bottleneck.LAUNCHES: _launches,
}

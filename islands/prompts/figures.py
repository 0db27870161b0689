"""What a profile says about the tier of a program: figures in words, with units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from db.measures import Tier
from db.profile import Counters, KernelProfile, Profile, Rule
from db.records import Hardware

N_STALLS = 4
N_KERNELS = 6

_SOURCES = {
    "ncu": "read by Nsight Compute",
    "compiled": "modelled from the compiled kernel, not measured",
    "none": "no counters",
}


class _Figure(NamedTuple):
    field: str
    words: str
    say: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _share(value: float) -> str:
    return f"{100 * value:.0f}%"


def bytes_in_words(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f} bytes"


_MEMORY_SOL = _Figure("memory_sol_pct", "speed of light of memory", _percent)
_COMPUTE_SOL = _Figure("compute_sol_pct", "speed of light of the SMs", _percent)
_ALWAYS = (
    _Figure("duration_us", "time on the GPU", lambda us: f"{us:.2f} us"),
    _MEMORY_SOL,
    _COMPUTE_SOL,
)
_MEMORY = (
    _Figure("dram_pct", "share of the peak bandwidth of DRAM", _percent),
    _Figure("dram_gb_s", "DRAM throughput", lambda rate: f"{rate:.0f} GB/s"),
    _Figure("dram_read_bytes", "read from DRAM", bytes_in_words),
    _Figure("dram_write_bytes", "written to DRAM", bytes_in_words),
    _Figure("l2_pct", "share of the peak throughput of L2", _percent),
    _Figure("l2_hit_pct", "hit rate of L2", _percent),
    _Figure("l1_pct", "share of the peak throughput of L1 and shared memory", _percent),
    _Figure("l1_hit_pct", "hit rate of L1", _percent),
)
_COMPUTE = (
    _Figure("tensor_pct", "cycles with an active tensor pipe", _percent),
    _Figure("issue_pct", "cycles of a scheduler that issue an instruction", _percent),
)
_RESIDENCY = (
    _Figure("occupancy", "theoretical occupancy", _share),
    _Figure("achieved_occupancy", "achieved occupancy", _share),
    _Figure("waves_per_sm", "waves of programs per SM", lambda n: f"{n:.2f}"),
    _Figure("n_registers", "registers per thread", lambda n: f"{n:.0f}"),
    _Figure("spill_bytes", "spilled per thread", bytes_in_words),
    _Figure("shared_bytes", "shared memory per program", bytes_in_words),
)
_TAKEN = ("n_registers", "spill_bytes", "shared_bytes", "occupancy")
BEARING: dict[Tier, tuple[_Figure, ...]] = {
    Tier.MEMORY_BOUND: (*_ALWAYS, *_MEMORY, *_RESIDENCY),
    Tier.COMPUTE_BOUND: (*_ALWAYS, *_COMPUTE, *_RESIDENCY, *_MEMORY[4:]),
    Tier.UNDERUTILIZED: (*_ALWAYS, *_RESIDENCY, *_COMPUTE, *_MEMORY),
    Tier.NEAR_OPTIMAL: (*_ALWAYS, *_MEMORY, *_COMPUTE, *_RESIDENCY),
}
"""The figures that bear on each tier, those that say most about it first."""


def figures_of(profile: Profile | None, tier: Tier | None, hardware: Hardware | None = None) -> tuple[str, ...]:
    """Every figure that was read and bears on the tier, one a line: "speed of light of memory: 73%"."""
    if profile is None:
        return ()
    lines = [f"source: {_SOURCES[profile.source]}" + (f" ({profile.note})" if profile.note else "")]
    lines += _figures(profile, tier or Tier.UNDERUTILIZED)
    if hardware and profile.dram_gb_s:
        share = 100 * profile.dram_gb_s / hardware.dram_gb_s
        lines.append(
            f"DRAM throughput is {share:.0f}% of the {hardware.dram_gb_s:.0f} GB/s that well-tuned code reaches here"
        )
    if profile.occupancy_limiter:
        lines.append(f"occupancy is limited by {profile.occupancy_limiter}")
    lines += _stalls(profile)
    if len(profile.kernels) > 1:
        lines += [_kernel(kernel) for kernel in profile.kernels[:N_KERNELS]]
    return tuple(lines)


def rules_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """What Nsight Compute advises, as it says it, estimates for the whole kernel first."""
    return tuple(f"{rule.name}: {rule.message}{_estimate(rule)}" for rule in rules)


def _estimate(rule: Rule) -> str:
    if rule.speedup_pct is None:
        return ""
    part = " of that part alone" if rule.scope == "local" else ""
    return f" (estimated speed-up{part}: {rule.speedup_pct:.0f}%)"


def _figures(profile: Profile, tier: Tier) -> Iterator[str]:
    for figure in BEARING[tier]:
        value = getattr(profile, figure.field)
        if value is not None:
            yield f"{figure.words}: {figure.say(value)}"


def _stalls(counters: Counters) -> Iterator[str]:
    for stall in counters.stalls[:N_STALLS]:
        reason = stall.reason.replace("_", " ")
        yield f"stall {reason}: {_share(stall.share)} of the waiting, {stall.cycles:.1f} cycles an instruction"


def _kernel(kernel: KernelProfile) -> str:
    time = f"{kernel.duration_us:.2f} us, " if kernel.duration_us is not None else ""
    grid = " x ".join(str(n) for n in kernel.grid)
    sol = f"memory {kernel.memory_sol_pct:.0f}%, SMs {kernel.compute_sol_pct:.0f}%"
    return f"kernel {kernel.kernel}: {time}grid {grid}, {kernel.n_threads} threads, {sol}"


def resources_of(kernel: KernelProfile) -> str:
    """What one kernel of several takes of an SM and what it waits for, as far as counters say it; empty where not."""
    figures = (figure for figure in _RESIDENCY if figure.field in _TAKEN)
    values = ((figure, getattr(kernel, figure.field)) for figure in figures)
    parts = [f"{figure.words} {figure.say(value)}" for figure, value in values if value is not None]
    parts += list(_stalls(kernel))[:1]
    return f"{kernel.kernel}: {', '.join(parts)}" if parts else ""

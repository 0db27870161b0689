"""How much each bottleneck may cost a program: a share in [0, 1], from counters or from what the compiler says.

Two sorts: *throughput* is how busy a unit is; *latency* is how much of the time nothing is busy for one reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from db.profile import Bottleneck, KernelKind, Profile
from db.records import Capture, Launch
from evaluators.profiling.thresholds import FEW_WARPS, LAUNCH_US, MANY_SPILLED_BYTES, MANY_WARPS, SAME_UNIT_PCT

_FOR_MEMORY = ("long_scoreboard", "lg_throttle", "tex_throttle", "drain")
_FOR_OTHERS = ("barrier", "membar", "short_scoreboard", "sleeping")  # reductions across warps go through shared memory
_FOR_ARITHMETIC = ("math_pipe_throttle", "wait", "dispatch_stall", "mio_throttle")
_TENSOR_KINDS = ("tf32", "fp16", "bf16", "int8")

Scores = dict[Bottleneck, float]


class Facts(NamedTuple):
    """What a diagnosis rests on."""

    profile: Profile
    kind: KernelKind
    launches: tuple[Launch, ...] = ()  # of the timed workload
    n_operations: int = 0  # launches and operations of torch

    @property
    def dominant(self) -> Launch | None:
        """The launch that takes longest, as far as anybody knows."""
        named = [launch for launch in self.launches if launch.kernel == self.profile.dominant]
        return max(named or self.launches, key=_weight, default=None)

    @property
    def tail(self) -> float | None:
        """Share of the SMs' time that waits for work: before the first wave is full, or in the last one."""
        waves = self.profile.waves_per_sm
        if waves is None or waves <= 0:
            return None
        return 1 - waves / math.ceil(waves)


def facts_of(profile: Profile, kind: KernelKind, captures: Sequence[Capture]) -> Facts:
    """Facts from a profile and the captures of its program, of which the first is that of the timed workload."""
    launches = captures[0].launches if captures else ()
    n_captured = len(launches) + len(captures[0].torch_ops) if captures else 0
    return Facts(profile, kind, launches, len(profile.kernels) or n_captured)


def dominant_launch(captures: Sequence[Capture]) -> Launch | None:
    """The launch of the timed workload that takes longest, as far as anybody knows without counters."""
    return max(captures[0].launches, key=_weight, default=None) if captures else None


def _weight(launch: Launch) -> tuple[float, int]:
    latency_us = launch.traffic.latency_us if launch.traffic else 0.0
    return latency_us, launch.grid[0] * launch.grid[1] * launch.grid[2]


def throughput_scores(facts: Facts) -> Scores:
    """How busy the units are that data and operations go through."""
    profile = facts.profile
    memory, compute = profile.memory_sol_pct, profile.compute_sol_pct
    is_dram = profile.dram_pct is None or memory <= profile.dram_pct + SAME_UNIT_PCT
    tensor = _tensor_pct(facts)
    is_tensor = tensor > 0 and compute <= tensor + SAME_UNIT_PCT
    return {
        Bottleneck.DRAM_BANDWIDTH: memory / 100 if is_dram else (profile.dram_pct or 0.0) / 100,
        Bottleneck.CACHE_BANDWIDTH: 0.0 if is_dram else memory / 100,
        Bottleneck.TENSOR_CORES: max(tensor, compute if is_tensor else 0.0) / 100,
        Bottleneck.ARITHMETIC: 0.0 if is_tensor else compute / 100,
    }


def _tensor_pct(facts: Facts) -> float:
    """Use of the tensor pipes; without counters, of the arithmetic if it is products that it does."""
    if facts.profile.tensor_pct is not None:
        return facts.profile.tensor_pct
    launch = facts.dominant
    flops = launch.traffic.flops if launch and launch.traffic else {}
    uses_them = any(flops.get(kind, 0.0) > 0 for kind in _TENSOR_KINDS) if flops else facts.kind is KernelKind.MATMUL
    return facts.profile.compute_sol_pct if uses_them else 0.0


def latency_scores(facts: Facts) -> Scores:
    """How much of the time goes into waiting, by what is waited for."""
    stalls = {stall.reason: stall.share for stall in facts.profile.stalls}
    known = bool(stalls)
    waiting = {
        Bottleneck.MEMORY_LATENCY: _share(stalls, _FOR_MEMORY) if known else _guess_memory(facts),
        Bottleneck.SYNCHRONISATION: _share(stalls, _FOR_OTHERS) if known else _guess_synchronisation(facts),
        Bottleneck.PARALLELISM: _parallelism(facts),
        Bottleneck.SPILLS: _spills(facts),
        Bottleneck.LAUNCHES: _launching(facts),
    }
    if known:
        waiting[Bottleneck.ARITHMETIC] = _share(stalls, _FOR_ARITHMETIC)
    return waiting


def _share(stalls: dict[str, float], reasons: tuple[str, ...]) -> float:
    return min(1.0, sum(stalls.get(reason, 0.0) for reason in reasons))


def _guess_memory(facts: Facts) -> float:
    """Without counters: loads wait where few warps are there to cover for each other."""
    occupancy = facts.profile.occupancy
    if occupancy is None:
        return 0.4
    return 0.4 + 0.3 * max(0.0, FEW_WARPS - occupancy) / FEW_WARPS


def _guess_synchronisation(facts: Facts) -> float:
    """Without counters: reductions and scans over many warps meet at barriers."""
    launch = facts.dominant
    if launch is None or facts.kind not in (KernelKind.ROW, KernelKind.REDUCTION, KernelKind.SCAN):
        return 0.0
    return min(0.6, 0.3 * launch.num_warps / MANY_WARPS)


def _parallelism(facts: Facts) -> float:
    if facts.tail is not None:
        return facts.tail
    if facts.profile.occupancy_limiter != "grid":
        return 0.0
    return max(0.3, 0.9 - (facts.profile.occupancy or 0.0))


def _spills(facts: Facts) -> float:
    spilled = facts.profile.spill_bytes or 0
    return min(0.95, 0.6 * spilled / MANY_SPILLED_BYTES)


def _launching(facts: Facts) -> float:
    """Share of starting kernels in the whole; one launch there must be."""
    extra, duration_us = facts.n_operations - 1, facts.profile.duration_us
    if extra < 1 or not duration_us:
        return 0.0
    starting = extra * LAUNCH_US
    in_all = duration_us + starting if facts.profile.kernels else max(duration_us, starting)
    return starting / in_all

"""The profile of a program from those of its launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from db.profile import KernelProfile, Profile
from evaluators.profiling.errors import ProfileError

SUMMED = ("duration_us", "dram_read_bytes", "dram_write_bytes")
WEIGHTED = (
    *("compute_sol_pct", "memory_sol_pct", "dram_pct", "l1_pct", "l2_pct", "dram_gb_s"),
    *("l1_hit_pct", "l2_hit_pct", "tensor_pct", "issue_pct"),
)
OF_DOMINANT = (
    *("n_registers", "spill_bytes", "shared_bytes", "occupancy", "achieved_occupancy"),
    *("occupancy_limiter", "waves_per_sm", "stalls", "rules"),
)


def combine(kernels: Sequence[KernelProfile]) -> Profile:
    """The whole of a program: durations and bytes summed, percentages weighted by duration, the rest of the dominant.

    The dominant kernel is the one with the longest total; its longest launch speaks for it.

    Raises:
        ProfileError: no launch, or none whose speed of light was read.
    """
    if not kernels:
        raise ProfileError("no kernel was launched")
    known = [k for k in kernels if {"compute_sol_pct", "memory_sol_pct"} & k.model_fields_set]
    if not known:
        raise ProfileError("no kernel's speed of light can be read")
    dominant = _dominant(kernels)
    sums = {name: _sum(kernels, name) for name in SUMMED}
    means = {name: _mean(kernels, name) for name in WEIGHTED}
    own = {name: getattr(dominant, name) for name in OF_DOMINANT}
    fields = {name: value for name, value in {**sums, **means, **own}.items() if value is not None}
    return Profile(source="ncu", dominant=dominant.kernel, kernels=tuple(kernels), **fields)


def _dominant(kernels: Sequence[KernelProfile]) -> KernelProfile:
    totals: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        totals[kernel.kernel] += kernel.duration_us or 0.0
    return max(kernels, key=lambda k: (totals[k.kernel], k.duration_us or 0.0))


def _sum(kernels: Sequence[KernelProfile], name: str) -> float | None:
    found = [value for k in kernels if (value := getattr(k, name)) is not None]
    return sum(found) if found else None


def _mean(kernels: Sequence[KernelProfile], name: str) -> float | None:
    """Weighted by duration, over the launches whose value was read; plain where no duration was."""
    known = [(float(getattr(k, name)), k.duration_us or 0.0) for k in kernels if name in k.model_fields_set]
    if not known:
        return None
    in_all = sum(weight for _, weight in known)
    if in_all <= 0:
        return sum(value for value, _ in known) / len(known)
    return sum(value * (weight / in_all) for value, weight in known)

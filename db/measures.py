"""The measure space: where in a grid a program belongs. Edges are fixed, so a cell means the same in every run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """What bounds a program: the class of its speed-of-light percentages."""

    NEAR_OPTIMAL = "near_optimal"
    UNDERUTILIZED = "underutilized"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"


TIERS: tuple[Tier, ...] = tuple(Tier)

# Percent of speed of light. 80 and 60 are the thresholds of Nsight Compute's SpeedOfLight rule: above 80 the unit is
# well used, below 60 on both sides latency or too little parallelism is the likely limit.
NEAR_OPTIMAL_ABOVE_PCT = 80.0
UNDERUTILIZED_BELOW_PCT = 60.0

BINS_PER_OCTAVE = 8
LOWEST_BIN = -3 * BINS_PER_OCTAVE  # 0.125 us and everything below
HIGHEST_BIN = 24 * BINS_PER_OCTAVE  # 16.8 s and everything above


def classify(compute_sol_pct: float, memory_sol_pct: float) -> Tier:
    """The tier for two speed-of-light percentages, each in [0, 100] (measurement noise above 100 is accepted).

    Raises:
        ValueError: a percentage is NaN, infinite or negative.
    """
    for name, value in (("compute_sol_pct", compute_sol_pct), ("memory_sol_pct", memory_sol_pct)):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} must be a finite percentage of at least 0, got {value!r}")
    if max(compute_sol_pct, memory_sol_pct) > NEAR_OPTIMAL_ABOVE_PCT:
        return Tier.NEAR_OPTIMAL
    if max(compute_sol_pct, memory_sol_pct) < UNDERUTILIZED_BELOW_PCT:
        return Tier.UNDERUTILIZED
    return Tier.MEMORY_BOUND if memory_sol_pct >= compute_sol_pct else Tier.COMPUTE_BOUND


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One bin of the grid. `latency_bin` k holds latencies in [2^(k/8), 2^((k+1)/8)) microseconds."""

    tier: Tier
    latency_bin: int


@dataclass(frozen=True, slots=True)
class MeasureSpace:
    """The fixed grid over (tier, log2 latency): 4 tiers by `n_latency_bins`, with open ends."""

    lowest_bin: int = LOWEST_BIN
    highest_bin: int = HIGHEST_BIN

    @property
    def n_latency_bins(self) -> int:
        return self.highest_bin - self.lowest_bin + 1

    @property
    def n_cells(self) -> int:
        return len(TIERS) * self.n_latency_bins

    def cell_of(self, tier: Tier, latency_us: float) -> Cell:
        """The cell for a tier and a latency in microseconds.

        Raises:
            ValueError: the latency is NaN, infinite, zero or negative.
        """
        return Cell(tier, self.latency_bin_of(latency_us))

    def latency_bin_of(self, latency_us: float) -> int:
        """The latency bin: floor(8 * log2(latency_us)), clamped to the open ends. Raises as `cell_of`."""
        if not math.isfinite(latency_us) or latency_us <= 0:
            raise ValueError(f"latency_us must be finite and positive, got {latency_us!r}")
        # a latency on an edge belongs to the bin that it opens, whatever log2 rounds to
        k = round(BINS_PER_OCTAVE * math.log2(latency_us))
        if latency_us < 2 ** (k / BINS_PER_OCTAVE):
            k -= 1
        return min(max(k, self.lowest_bin), self.highest_bin)

    def edges_us(self, latency_bin: int) -> tuple[float, float]:
        """Lower and upper edge of a bin in microseconds; the ends are open: 0 and infinity."""
        lower = 0.0 if latency_bin <= self.lowest_bin else 2 ** (latency_bin / BINS_PER_OCTAVE)
        upper = math.inf if latency_bin >= self.highest_bin else 2 ** ((latency_bin + 1) / BINS_PER_OCTAVE)
        return lower, upper

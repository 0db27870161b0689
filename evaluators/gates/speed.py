"""Speed gate: may the program replace the baseline? Plus the statistics of repeated timings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from db.records import Gate, GateResult

CALL_LIMIT = 1.03  # a program may cost a caller at most this much more than the baseline does
MARGIN = 0.01
# The same kernel captured twice differs by placement in memory: measured on an H200 as 19% at 1.8 us, 3% at 7 us,
# 1% at 19 us, 0.2% at 520 us. A fifth of a microsecond covers it.
PLACEMENT_US = 0.2
FIRST_LOOK_SLACK = 1.10  # slower than this after a first look: not worth more of the GPU's time


class Interval(NamedTuple):
    """A median and the bounds that hold it with 95% or more."""

    median: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Between the bounds, as a share of the median."""
        return (self.high - self.low) / self.median


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Median of repeated measurements with its distribution-free interval from order statistics.

    The k-th smallest and k-th largest of n hold the median with probability 1 - 2 P(Binomial(n, 1/2) < k). Fewer than
    six values cannot reach 95%: then the extremes are the interval.

    Raises:
        ValueError: `values` is empty.
    """
    if not values:
        raise ValueError("median_interval needs at least one value")
    ordered = sorted(values)
    n, k, tail = len(ordered), 0, 0.0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n
        if 2 * tail > 1 - confidence:
            break
        k += 1
    k = max(k, 1)
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[n - k])


def noise_margin(latency_us: float) -> float:
    """The relative gain below which two timings of this length count as equal."""
    return MARGIN + PLACEMENT_US / latency_us


def is_clearly_slower(device_us: float, baseline_us: float, best_us: float | None) -> bool:
    """Whether a first look is enough: slower than the baseline and than the best so far, beyond doubt."""
    return device_us > FIRST_LOOK_SLACK * max(baseline_us, best_us or 0.0)


def is_settled(ratios: Sequence[float], margin: float) -> bool:
    """Whether the interval of the paired ratios (baseline over program) lies on one side of the margin already."""
    interval = median_interval(ratios)
    return interval.low > 1 + margin or interval.high < 1 + margin


def speed_gate(gain: Interval, margin: float, call_ratio: Interval | None, baseline_name: str) -> GateResult:
    """Whether the program may replace the baseline.

    Args:
        gain: device latency of the baseline over that of the program, from interleaved rounds.
        margin: relative gain that noise alone may produce.
        call_ratio: call latency of the program over that of the baseline.
    """
    evidence: dict[str, object] = {"gain": gain._asdict(), "margin": margin}
    if call_ratio is not None:
        evidence["call_ratio"] = call_ratio._asdict()
    reason = ""
    if gain.low <= 1 + margin:
        reason = (
            f"not faster than {baseline_name} beyond the noise: "
            f"gain {gain.median:.4f} [{gain.low:.4f}, {gain.high:.4f}], needed above {1 + margin:.4f}"
        )
    elif call_ratio is not None and call_ratio.median > CALL_LIMIT:
        reason = (
            f"a call takes {call_ratio.median:.3f} times that of {baseline_name} (at most {CALL_LIMIT}): "
            "its host code costs more than the kernel gains"
        )
    return GateResult(gate=Gate.SPEED, passed=not reason, reason=reason, evidence=evidence)

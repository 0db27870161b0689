"""Why an attempt did not gain what was expected of it: the same profiles always give the same words."""

from __future__ import annotations

from collections.abc import Iterator

from db.knowledge import KEPT_OCTAVES, MOST_OCTAVES
from islands.knowledge.situation import Standing

AS_PREDICTED_OCTAVES = 0.05
"""A gain that is this close to its prediction (3.5% of latency) needs no explanation."""

_OCCUPANCY_STEP = 0.1
_TRAFFIC_STEP = 0.05
_MOST_REASONS = 2


def cause_of(before: Standing, after: Standing, predicted_octaves: float | None, octaves: float | None) -> str:
    """The cause of the difference between prediction and measurement.

    Args:
        before, after: the program that was edited, and what came of it.
        predicted_octaves: never negative; None where nothing was predicted.
        octaves: what was measured, losses included; None for a program that failed.
    """
    if after.gate:
        return f"failed: gate {after.gate}"
    if octaves is None:
        return "cannot be compared with its parent"
    if after.is_repeat:
        return "the same machine code as a program judged before"
    gain = min(max(octaves, 0.0), MOST_OCTAVES)
    expected = predicted_octaves or 0.0
    if predicted_octaves is not None and octaves > KEPT_OCTAVES and abs(gain - expected) <= AS_PREDICTED_OCTAVES:
        return "as predicted"
    if abs(octaves) < -KEPT_OCTAVES and before.limit == after.limit:
        return "the machine code did not change what limits it"
    is_worse = gain < expected or octaves < KEPT_OCTAVES
    reasons = list(_losses(before, after) if is_worse else _wins(before, after))
    if before.limit and after.limit and before.limit != after.limit and before.source == after.source:
        reasons.append(f"the bottleneck moved from {before.limit} to {after.limit}")
    nothing = "slower" if octaves < 0 else "a smaller gain" if is_worse else "a larger gain"
    return "; ".join(reasons[:_MOST_REASONS]) or f"{nothing}, and the profile does not say why"


def _losses(before: Standing, after: Standing) -> Iterator[str]:
    if (after.spill_bytes or 0) > (before.spill_bytes or 0):
        yield "more spills" if before.spill_bytes else "spills appeared"
    if _rise(before.occupancy, after.occupancy) <= -_OCCUPANCY_STEP:
        yield f"occupancy fell from {before.occupancy:.0%} to {after.occupancy:.0%}"
    if _growth(before.dram_bytes, after.dram_bytes) > _TRAFFIC_STEP:
        yield f"{_growth(before.dram_bytes, after.dram_bytes):.0%} more traffic"


def _wins(before: Standing, after: Standing) -> Iterator[str]:
    if (before.spill_bytes or 0) > (after.spill_bytes or 0):
        yield "fewer spills" if after.spill_bytes else "spills disappeared"
    if _rise(before.occupancy, after.occupancy) >= _OCCUPANCY_STEP:
        yield f"occupancy rose from {before.occupancy:.0%} to {after.occupancy:.0%}"
    if _growth(before.dram_bytes, after.dram_bytes) < -_TRAFFIC_STEP:
        yield f"{-_growth(before.dram_bytes, after.dram_bytes):.0%} less traffic"


def _rise(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else after - before


def _growth(before: float | None, after: float | None) -> float:
    """Relative; 0 where one of the two is not known."""
    return after / before - 1 if before and after is not None else 0.0

"""When a search has nothing left to find: its best program runs at the roof."""

from __future__ import annotations

from db.records import LatencyKind, Verdict

ROOFLINE = "roofline"

NEAR_FLOOR = 0.85  # of the physical floor: a program that moves more bytes than it must can be at the roof and slow


def is_at_roofline(verdict: Verdict, efficiency: float) -> bool:
    """Whether a program has reached this share (0 to 1) of the larger speed of light.

    Only counters and the model say how busy a unit is; the provisional profile of a measured program compares with the
    bandwidth of a copy, which programs that mostly read exceed. Where memory is the limit, the program must also be
    near the physical floor: three passes over the input at full bandwidth are no reason to stop.
    """
    profile, latency = verdict.profile, verdict.latency
    if profile is None or latency is None or profile.source == "none":
        return False
    if latency.kind is LatencyKind.MEASURED and profile.source != "ncu":
        return False
    is_lean = latency.floor_us is not None and latency.floor_us >= NEAR_FLOOR * latency.device_us
    is_compute = profile.compute_sol_pct >= profile.memory_sol_pct
    return profile.roofline_efficiency >= efficiency and (is_compute or is_lean)

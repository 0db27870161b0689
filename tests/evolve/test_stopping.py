"""A search ends at the roof, and only where the roof was read and the program is lean."""

from __future__ import annotations

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.profile import Profile
from db.records import LatencyKind, Verdict
from evolve.stopping import is_at_roofline

PROBLEM = make_problem()
RUN = make_run(PROBLEM)


def verdict(profile: Profile, floor_us: float | None, kind: LatencyKind = LatencyKind.MEASURED) -> Verdict:
    made = one_evaluation(PROBLEM, RUN, 0, 100.0).verdict
    assert made.latency is not None
    latency = made.latency.model_copy(update={"floor_us": floor_us, "kind": kind})
    return made.model_copy(update={"profile": profile, "latency": latency})


FULL = Profile(source="ncu", memory_sol_pct=96.0)


@pytest.mark.parametrize(
    ("profile", "floor_us", "kind", "ends"),
    [
        (FULL, 90.0, LatencyKind.MEASURED, True),
        (FULL.model_copy(update={"memory_sol_pct": 94.0}), 90.0, LatencyKind.MEASURED, False),
        (FULL, 60.0, LatencyKind.MEASURED, False),  # moves more than it must
        (FULL, None, LatencyKind.MEASURED, False),
        (Profile(source="ncu", compute_sol_pct=97.0), 20.0, LatencyKind.MEASURED, True),
        (FULL.model_copy(update={"source": "compiled"}), 90.0, LatencyKind.MEASURED, False),
        (FULL.model_copy(update={"source": "compiled"}), 90.0, LatencyKind.MODELLED, True),
        (Profile(source="none", memory_sol_pct=99.0), 99.0, LatencyKind.MODELLED, False),
    ],
)
def test_the_roof(profile: Profile, floor_us: float | None, kind: LatencyKind, ends: bool) -> None:
    assert is_at_roofline(verdict(profile, floor_us, kind), 0.95) is ends

"""A search ends at the roof, where the roof was read and the program is lean; or where no first program is in sight."""

from __future__ import annotations

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.profile import Profile
from db.records import LatencyKind, Verdict
from evolve.stopping import Patience, is_at_roofline
from islands.llm.exchange import Completion, Failure, FailureKind

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


ANSWER = Completion(
    text="no", model="m", finish_reason="stop", n_tokens_in=1, n_tokens_out=1, cost_usd=None, seconds=1.0
)


def failure(*, is_final: bool) -> Failure:
    return Failure(kind=FailureKind.BAD_REQUEST, reason="no", is_final=is_final)


def test_patience_ends_after_so_many_answers_and_refusals_but_not_failures_that_pass() -> None:
    patience = Patience(2, 600.0, clock=lambda: 0.0)
    for outcome in (ANSWER, *[failure(is_final=False)] * 5):
        patience.hear(outcome)
    assert not patience.is_over
    patience.hear(failure(is_final=True))
    assert patience.is_over


def test_patience_ends_with_silence_which_an_answer_breaks() -> None:
    now = [0.0]
    patience = Patience(100, 600.0, clock=lambda: now[0])
    now[0] = 599.0
    patience.hear(ANSWER)
    now[0] = 1198.0
    patience.hear(failure(is_final=False))
    assert not patience.is_over
    now[0] = 1199.0
    assert patience.is_over

"""When a search has nothing left to find: its best program runs at the roof, or no first one is in sight."""

from __future__ import annotations

import time
from collections.abc import Callable

from db.records import LatencyKind, Verdict
from islands.llm.exchange import Completion, Outcome

NO_FIRST_PROGRAM = "no first program was found"
ROOFLINE = "roofline"
STAGNATION = "stagnation"

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


class Patience:
    """For how long language models may try to write the first program of a run that starts from none.

    Args:
        n_answers: that brought none, after which it is given up. A refusal that would be the same again counts too.
        silence_s: seconds in which all questions failed, after which it is given up.
    """

    def __init__(self, n_answers: int, silence_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._n_left = n_answers
        self._silence_s = silence_s
        self._clock = clock
        self._last_answer = clock()

    def hear(self, outcome: Outcome) -> None:
        """One more answer, or a question that failed."""
        if isinstance(outcome, Completion):
            self._last_answer = self._clock()
        if isinstance(outcome, Completion) or outcome.is_final:
            self._n_left -= 1

    @property
    def is_over(self) -> bool:
        """Whether to give up."""
        return self._n_left <= 0 or self._clock() - self._last_answer >= self._silence_s

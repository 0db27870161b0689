"""When a run ends: verdicts, wall-clock, stagnation, or somebody's wish."""

from __future__ import annotations

import time
from collections.abc import Callable

EVALUATIONS = "evaluations"
AS_MANY_AS_FIT = 1_000_000  # verdicts: more than any run has; the limit of a run that is limited by time alone


class Budget:
    """Grants candidates until a limit is reached. Times in seconds.

    What is held for a proposal and not used (an island had nothing) is granted again, so a run judges exactly
    `evaluations` candidates when nothing else ends it; more only where it starts from more programs.
    """

    def __init__(
        self,
        evaluations: int,
        time_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.evaluations = evaluations
        self._time_s = time_s
        self._n_spent = 0
        self._n_held = 0
        self._clock = clock
        self._started = clock()
        self.stop_reason = ""

    def resume(self, n_spent: int, elapsed_s: float) -> None:
        """Count what earlier sittings of the same run spent."""
        self.spend(n_spent)
        self._started = self._clock() - elapsed_s

    def take(self, n: int) -> int:
        """How many of `n` candidates start now; 0 where the run is over, or where others hold what is left."""
        if self.is_over():
            return 0
        granted = min(n, self.evaluations_left)
        self.spend(granted)
        return granted

    def hold(self, n: int) -> int:
        """Like `take`, for candidates that are still to be proposed: `use` has to follow, and until then nobody knows
        whether the run is over."""
        if self.is_over():
            return 0
        held = min(n, self.evaluations_left)
        self._n_held += held
        return held

    def use(self, n: int, held: int) -> None:
        """Spend `n` of what was held, and let go of the rest."""
        self._n_held -= held
        self.spend(n)

    def spend(self, n: int) -> None:
        """Count candidates that start whatever is left: the first programs of a run."""
        self._n_spent += n

    def stop(self, reason: str) -> None:
        """End the run for a reason of its own; the first reason stays."""
        self.stop_reason = self.stop_reason or reason

    def is_over(self) -> bool:
        """Whether nothing more is granted; sets `stop_reason`."""
        if self._time_s is not None and self.elapsed_s >= self._time_s:
            self.stop("time")
        if self._n_spent >= self.evaluations:
            self.stop(EVALUATIONS)
        return bool(self.stop_reason)

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    @property
    def time_left_s(self) -> float | None:
        return None if self._time_s is None else max(0.0, self._time_s - self.elapsed_s)

    @property
    def evaluations_left(self) -> int:
        """What may still be granted."""
        return max(0, self.evaluations - self._n_spent - self._n_held)

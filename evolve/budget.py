"""When a run ends: verdicts, wall-clock, stagnation, or somebody's wish."""

from __future__ import annotations

import time
from collections.abc import Callable

EVALUATIONS = "evaluations"


class Budget:
    """Grants candidates until a limit is reached. Times in seconds.

    What is granted but not spent (an island had nothing to propose) is given back, so a run judges exactly
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
        self._n_granted = 0
        self._clock = clock
        self._started = clock()
        self.stop_reason = ""

    def resume(self, n_spent: int, elapsed_s: float) -> None:
        """Count what earlier sittings of the same run spent."""
        self.spend(n_spent)
        self._started = self._clock() - elapsed_s

    def take(self, n: int) -> int:
        """How many of `n` candidates may start now; 0 means that the run is over."""
        if self.is_over():
            return 0
        granted = min(n, self.evaluations_left)
        self.spend(granted)
        return granted

    def spend(self, n: int) -> None:
        """Count candidates that start whatever is left: the first programs of a run."""
        self._n_granted += n

    def give_back(self, n: int) -> None:
        """Return what was granted and not used; who returns it may ask again, even if the rest was gone meanwhile."""
        self._n_granted -= n
        if n and self.stop_reason == EVALUATIONS:
            self.stop_reason = ""

    def stop(self, reason: str) -> None:
        """End the run for a reason of its own; the first reason stays."""
        self.stop_reason = self.stop_reason or reason

    def is_over(self) -> bool:
        """Whether nothing more is granted; sets `stop_reason`."""
        if self._time_s is not None and self.elapsed_s >= self._time_s:
            self.stop("time")
        if self._n_granted >= self.evaluations:
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
        return max(0, self.evaluations - self._n_granted)

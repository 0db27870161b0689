"""How much of the time an actor had something to do."""

from __future__ import annotations

import time
from collections.abc import Callable


class BusyClock:
    """Adds up the time in which at least one call is in progress, once warm: from the end of the first call on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._n_calls = 0
        self._busy_s = 0.0
        self._since = 0.0  # when the calls in progress began to count
        self._ended_at = 0.0  # when the last call in progress ended
        self._warm_at: float | None = None

    def enter(self) -> None:
        """A call begins."""
        if self._n_calls == 0:
            self._since = self._clock()
        self._n_calls += 1

    def leave(self) -> None:
        """A call ends, well or not."""
        now = self._clock()
        if self._warm_at is None:
            self._warm_at = self._since = now
        self._n_calls -= 1
        if self._n_calls == 0:
            self._busy_s += now - self._since
            self._ended_at = now

    def share(self, until: float | None = None) -> float:
        """Busy time over the time since the first call ended, in [0, 1]; 0 before that.

        Args:
            until: counts up to this moment instead of now; no call may have begun since.
        """
        end = self._clock() if until is None else until
        if self._warm_at is None or end <= self._warm_at:
            return 0.0
        busy_s = self._busy_s
        if self._n_calls:
            busy_s += end - self._since
        else:
            busy_s -= max(0.0, self._ended_at - max(self._since, end))
        return busy_s / (end - self._warm_at)

"""When a model is left alone: a while after a rate limit, longer after failures in a row, for good when it is gone.

The circuit breaker of M. Nygard, Release It!, 2007: open after so many failures in a row; then half open, which lets
one call try; closed when that is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from islands.llm.faults import Refusal

_MOST_OPEN_S = 900.0


class Circuit(StrEnum):
    """What a breaker lets through."""

    CLOSED = "closed"  # everything
    HALF_OPEN = "half_open"  # one call, to see
    OPEN = "open"  # nothing, for a while
    GONE = "gone"  # nothing, ever: a refused key, a model that is not there


class Breaker:
    """One for each model and server. Times in seconds of the clock."""

    def __init__(self, *, n_failures: int, open_s: float, pause_s: float, clock: Callable[[], float]) -> None:
        """
        Args:
            n_failures: failures in a row that open it.
            open_s: how long it stays open first; twice as long after every try that failed.
            pause_s: after a rate limit that named no time; twice as long after each in a row.
        """
        self._n_failures, self._open_s, self._pause_s, self._clock = n_failures, open_s, pause_s, clock
        self._n_in_row = self._n_limits_in_row = self._n_opened = 0
        self._open_until: float | None = None
        self._paused_until = 0.0
        self._is_trying = self._is_gone = False
        self.reason = ""  # of the last failure

    @property
    def circuit(self) -> Circuit:
        if self._is_gone:
            return Circuit.GONE
        if self._open_until is None:
            return Circuit.CLOSED
        is_waiting = self._is_trying or self._clock() < self._open_until
        return Circuit.OPEN if is_waiting else Circuit.HALF_OPEN

    @property
    def pause_left_s(self) -> float:
        """How long the server wants to be left alone."""
        return max(0.0, self._paused_until - self._clock())

    def begin(self) -> None:
        """A call is about to be made, which the circuit allows."""
        self._is_trying = self.circuit is Circuit.HALF_OPEN

    def answered(self) -> None:
        """The model works."""
        self._n_in_row = self._n_limits_in_row = self._n_opened = 0
        self._open_until, self._is_trying = None, False

    def abandoned(self) -> None:
        """A call ended without saying anything about the model: cancelled, or refused for what was asked."""
        self._is_trying = False

    def limited(self, refusal: Refusal) -> None:
        """The server is there and says: later."""
        self.reason, self._is_trying = refusal.reason, False
        if self.pause_left_s > 0 and refusal.retry_after_s is None:
            return  # of many calls refused at once the first has said it
        pause_s = self._pause_s * 2 ** min(self._n_limits_in_row, 10)
        self._n_limits_in_row += 1
        wanted_s = pause_s if refusal.retry_after_s is None else refusal.retry_after_s
        self._paused_until = max(self._paused_until, self._clock() + min(wanted_s, _MOST_OPEN_S))

    def failed(self, refusal: Refusal) -> None:
        """The model or its server does not work."""
        self.reason, self._is_trying = refusal.reason, False
        self._n_in_row += 1
        now = self._clock()
        is_open = self._open_until is not None and now < self._open_until
        if self._n_in_row >= self._n_failures and not is_open:
            self._open_until = now + min(self._open_s * 2 ** min(self._n_opened, 10), _MOST_OPEN_S)
            self._n_opened += 1

    def lost(self, refusal: Refusal) -> None:
        """The model will not come back in this run."""
        self.reason, self._is_gone = refusal.reason, True

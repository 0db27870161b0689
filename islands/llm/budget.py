"""What may be spent on language models: dollars, tokens, calls, wall-clock. Calls in flight count as spent.

A call reserves the most that it can cost before it is made, so that no number of calls at once can overspend.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from pydantic import Field

from db.frozen import Record
from islands.llm.models import Price


class Limits(Record):
    """None: no limit."""

    usd: float | None = Field(default=None, ge=0)
    n_tokens: int | None = Field(default=None, ge=0)  # in and out together
    n_calls: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)  # of wall-clock, since the first question of the run


class Spend(Record):
    """What calls came to. Dollars are those of models with a price."""

    usd: float = 0.0
    n_tokens: int = 0
    n_calls: int = 0

    def plus(self, other: Spend) -> Spend:
        return Spend(
            usd=self.usd + other.usd, n_tokens=self.n_tokens + other.n_tokens, n_calls=self.n_calls + other.n_calls
        )


class Reservation(NamedTuple):
    """The most that a call in flight can cost."""

    usd: float
    n_tokens: int


class LlmBudget:
    """Grants calls until a limit is reached. One for a run; used from one event loop."""

    def __init__(self, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or Limits()
        self.spent = Spend()
        self._in_flight: dict[int, Reservation] = {}
        self._n_reserved = 0
        self._clock = clock
        self._earlier_s = 0.0  # that earlier sittings took
        self._started: float | None = None
        self._settled = asyncio.Event()

    def resume(self, spent: Spend, elapsed_s: float) -> None:
        """Count what earlier sittings of the same run spent."""
        self.count(spent)
        self._earlier_s = elapsed_s

    def count(self, spent: Spend) -> None:
        """Count what is as good as spent."""
        self.spent = self.spent.plus(spent)

    def start(self) -> None:
        """The wall-clock goes from here on, unless it goes already. The first call that is granted starts it, too."""
        if self._started is None:
            self._started = self._clock()

    @property
    def in_flight(self) -> Spend:
        """The most that calls in flight can come to."""
        open_calls = self._in_flight.values()
        return Spend(
            usd=sum(r.usd for r in open_calls), n_tokens=sum(r.n_tokens for r in open_calls), n_calls=len(open_calls)
        )

    @property
    def elapsed_s(self) -> float:
        """Since the first question, earlier sittings included."""
        return self._earlier_s + (0.0 if self._started is None else self._clock() - self._started)

    @property
    def time_left_s(self) -> float:
        """Seconds of wall-clock left; infinite without a limit."""
        return float("inf") if self.limits.seconds is None else max(0.0, self.limits.seconds - self.elapsed_s)

    def exhausted(self, price: Price | None, n_tokens_in: int, n_tokens_out: int) -> str:
        """The limit that refuses a call even when nothing is in flight, in words; empty where there is none.

        Args:
            price: None where the model is unpriced.
            n_tokens_in, n_tokens_out: the most that the call can take.
        """
        return self._refusal(self.spent, _most(price, n_tokens_in, n_tokens_out))

    async def reserve(self, price: Price | None, n_tokens_in: int, n_tokens_out: int) -> int | str:
        """A ticket for a call, to be settled; or why there is none. Waits while only calls in flight stand against it.

        Arguments as for `exhausted`.
        """
        wanted = _most(price, n_tokens_in, n_tokens_out)
        while True:
            never = self._refusal(self.spent, wanted)
            if never:
                return never
            if not self._refusal(self.spent.plus(self.in_flight), wanted):
                self.start()
                self._n_reserved += 1
                self._in_flight[self._n_reserved] = wanted
                return self._n_reserved
            self._settled.clear()
            await self._settled.wait()

    def settle(self, ticket: int, usd: float, n_tokens: int) -> None:
        """Replaces a reservation by what the call came to. A ticket is settled once."""
        del self._in_flight[ticket]
        self.spent = self.spent.plus(Spend(usd=usd, n_tokens=n_tokens, n_calls=1))
        self._settled.set()

    def release(self, ticket: int) -> None:
        """Gives a reservation back whose call was never made."""
        del self._in_flight[ticket]
        self._settled.set()

    def _refusal(self, spent: Spend, wanted: Reservation) -> str:
        limits = self.limits
        if limits.usd is not None and spent.usd + wanted.usd > limits.usd:
            return f"{limits.usd:g} dollars: {spent.usd:.4g} are spent and a call may cost {wanted.usd:.4g}"
        if limits.n_tokens is not None and spent.n_tokens + wanted.n_tokens > limits.n_tokens:
            return f"{limits.n_tokens} tokens: {spent.n_tokens} are spent and a call may take {wanted.n_tokens}"
        if limits.n_calls is not None and spent.n_calls + 1 > limits.n_calls:
            return f"{limits.n_calls} calls are made"
        if self.time_left_s <= 0:
            return f"{limits.seconds:g} seconds are over"
        return ""


def _most(price: Price | None, n_tokens_in: int, n_tokens_out: int) -> Reservation:
    usd = 0.0 if price is None else price.of(n_tokens_in, n_tokens_out)
    return Reservation(usd, n_tokens_in + n_tokens_out)

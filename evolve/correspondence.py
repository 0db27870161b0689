"""Carries the questions of islands to language models, and the answers back. The GPU never waits for any of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from db.records import Candidate
from evolve.budget import Budget
from evolve.cluster import answer
from islands.dialogues import Question
from islands.llm.exchange import Failure, FailureKind, Outcome, Request

IDLE_S = 0.2
POLL_S = 0.25
GRANT_S = 0.02

PAUSE_S = 5.0  # of a chain whose question nobody answered

FOR_GOOD = frozenset({FailureKind.BUDGET, FailureKind.NOT_RECORDED, FailureKind.NO_MODEL, FailureKind.AUTHENTICATION})
"""Failures after which, where they are final, no question is answered any more. A model that is left alone for a while
comes back, and where a model of another role may still be asked none of them is final."""


def is_for_good(failure: Failure) -> bool:
    """Whether no question is answered any more after this."""
    return failure.is_final and failure.kind in FOR_GOOD


class Client(Protocol):
    """Whoever answers requests: a `LlmClient`, or a recording of one."""

    async def complete(self, request: Request) -> Outcome: ...

    def due_turn(self, request: Request) -> int | None:
        """Replaying: the turn of the next answer to this request, -1 where it was never taken in. Else None."""
        ...

    def taken_in(self, request: Request, turn: int) -> None:
        """An answer was told to its island, at a turn of a run that goes in order."""
        ...


Settle = Callable[[int, Sequence[Candidate]], Awaitable[object]]
OnAnswer = Callable[[Question, Outcome, Candidate | None], Awaitable[None]]


class Correspondence:
    """Keeps `n_per_island` questions of every island with the models, until the run is over or no model answers.

    Args:
        settle: judges candidates of an island, keeps the verdicts and tells them.
        on_answer: is told of every answer, and of the candidate that came of it.
        on_silence: is told why no model answers any more, once.
        may_ask: whether a question may be asked now.
    """

    def __init__(
        self,
        client: Client,
        islands: Sequence[Any],
        budget: Budget,
        *,
        n_per_island: int,
        settle: Settle,
        on_answer: OnAnswer,
        on_silence: Callable[[str], None],
        may_ask: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._islands = list(islands)
        self._budget = budget
        self._n_per_island = n_per_island
        self._settle = settle
        self._on_answer = on_answer
        self._on_silence = on_silence
        self._may_ask = may_ask
        self.has_ended = False  # nothing is asked, awaited or judged any more
        self.why_silent = ""  # why no model answers any more

    @property
    def may_bring_more(self) -> bool:
        """Whether an answer may still come, be it to a question that was asked before models fell silent."""
        return not self.has_ended

    async def run(self) -> None:
        """All questions of all islands."""
        try:
            async with asyncio.TaskGroup() as chains:
                for index in range(len(self._islands)):
                    for _ in range(self._n_per_island):
                        chains.create_task(self._chain(index))
        finally:
            self.has_ended = True

    async def _chain(self, index: int) -> None:
        island = self._islands[index]
        while not self._is_over():
            if not self._may_ask():
                await asyncio.sleep(IDLE_S)
                continue
            questions: list[Question] = await answer(island.questions.remote(1))
            if not questions:
                await asyncio.sleep(IDLE_S)
            for question in questions:
                outcome = await self._ask(question.request)
                if outcome is not None:
                    await self._take_in(index, question, outcome)

    def _is_over(self) -> bool:
        return bool(self.why_silent) or self._budget.is_over()

    async def _ask(self, request: Request) -> Outcome | None:
        """The answer; None when the run ended before it came. It is paid for, so no silence of others ends it."""
        call = asyncio.create_task(self._client.complete(request))
        while not call.done():
            await asyncio.wait({call}, timeout=POLL_S)
            if not call.done() and self._budget.is_over():
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
                return None
        return call.result()

    async def _take_in(self, index: int, question: Question, outcome: Outcome) -> None:
        candidate: Candidate | None = await answer(self._islands[index].answered.remote(question.dialogue_id, outcome))
        await self._on_answer(question, outcome, candidate)
        if isinstance(outcome, Failure):
            await self._fail(outcome)
        if candidate is not None and await self._is_granted():
            await self._settle(index, [candidate])

    async def _is_granted(self) -> bool:
        """Whether one more candidate may start. Islands may hold the rest of the budget and leave it again."""
        while not self._budget.take(1):
            if self._budget.is_over():
                return False
            await asyncio.sleep(GRANT_S)
        return True

    async def _fail(self, failure: Failure) -> None:
        """Falls silent where asking again is of no use, else waits before the next question."""
        if is_for_good(failure):
            if not self.why_silent:
                self.why_silent = failure.reason
                self._on_silence(failure.reason)
            return
        for _ in range(round(PAUSE_S / POLL_S)):
            if self._is_over():
                return
            await asyncio.sleep(POLL_S)

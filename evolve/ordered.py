"""The loop in order: what is asked, and what the islands know by then, follows from the configuration alone.

Verdicts are taken in in the order in which their candidates were asked, however many workers there are and however fast
they are. An answer of a language model is taken in when it comes; a recording says at which turn that was, and a replay
takes it in at the same one. Each verdict and each answer is a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from db.hashing import content_hash
from db.records import CONFIRM, Candidate, Evaluation, Verdict
from evolve.budget import Budget
from evolve.cluster import answer
from evolve.correspondence import PAUSE_S, POLL_S, Client, OnAnswer, is_for_good
from islands.dialogues import Question
from islands.llm.exchange import Failure, Outcome

PAUSE_TURNS = 8  # of an island whose question nobody answered


class Talk(NamedTuple):
    """Language models that propose as well.

    `n_per_island` questions of an island may wait for an answer; `on_answer` is told of every answer and of the
    candidate that came of it; `on_silence` is told why no model answers any more, once; `may_ask` says whether they may
    be asked now, though others propose.
    """

    client: Client
    n_per_island: int
    on_answer: OnAnswer
    on_silence: Callable[[str], None]
    may_ask: Callable[[], bool]


class _Waiting(NamedTuple):
    island: int
    candidate: Candidate
    verdict: asyncio.Task[Verdict]


class _Call(NamedTuple):
    island: int
    question: Question
    outcome: asyncio.Task[Outcome]
    turn: int | None  # at which it has to be taken in; None: when it comes, -1: never


class OrderedLoop:
    """Drives islands until the budget is spent.

    Args:
        window: candidates in flight, over all islands.
        judge: the verdict of a candidate.
        take_in: keeps and tells a verdict.
        talk: without it no model is asked.
    """

    def __init__(
        self,
        islands: Sequence[Any],
        budget: Budget,
        *,
        window: int,
        judge: Callable[[Candidate], Awaitable[Verdict]],
        take_in: Callable[[int, Candidate, Verdict], Awaitable[None]],
        talk: Talk | None = None,
    ) -> None:
        self._islands = list(islands)
        self._budget = budget
        self._window = window
        self._judge = judge
        self._take_in = take_in
        self._talk = talk
        self._is_silent = False  # nothing is asked any more; what was asked is still taken in
        self._waiting: deque[_Waiting] = deque()
        self._calls: list[_Call] = []
        self._next_index = 0
        self._paused_until: dict[int, int] = {}  # turn by island
        self.n_turns = 0

    async def run(self) -> None:
        """Turn after turn, until there is nothing left to wait for."""
        try:
            await self._fill()
            while await self._turn():
                await self._fill()
        finally:
            await self._drop([*self._calls, *self._waiting])

    async def _fill(self) -> None:
        """Asks islands in turn, until enough is in flight or none has anything."""
        n_idle = 0
        while len(self._waiting) < self._window and n_idle < len(self._islands):
            index = self._next_index
            self._next_index = (index + 1) % len(self._islands)
            await self._ask_model(index)
            n_idle = 0 if await self._ask_island(index) else n_idle + 1

    async def _ask_island(self, index: int) -> bool:
        if not self._budget.hold(1):
            return False
        candidates: list[Candidate] = await answer(self._islands[index].ask.remote(1))
        self._budget.use(len(candidates), held=1)
        for candidate in candidates:
            self._send(index, candidate)
        return bool(candidates)

    def _send(self, index: int, candidate: Candidate) -> None:
        self._waiting.append(_Waiting(index, candidate, asyncio.ensure_future(self._judge(candidate))))

    async def _ask_model(self, index: int) -> None:
        n_out = sum(call.island == index for call in self._calls)
        is_paused = self._paused_until.get(index, 0) > self.n_turns
        if (
            self._talk is None
            or self._is_silent
            or is_paused
            or n_out >= self._talk.n_per_island
            or self._budget.is_over()
        ):
            return
        if self._waiting and not self._talk.may_ask():
            return
        for question in await answer(self._islands[index].questions.remote(1)):
            turn = self._talk.client.due_turn(question.request)
            outcome = asyncio.ensure_future(self._talk.client.complete(question.request))
            self._calls.append(_Call(index, question, outcome, turn))
            await asyncio.sleep(0)  # it begins: the client counts it before the next one is asked

    # --------------------------------------------------------------------------------------------------------- turns

    async def _turn(self) -> bool:
        """Takes in one answer or one verdict; False when there is nothing to wait for."""
        call = await self._due_call()
        if call is not None:
            await self._take_answer(call)
        elif self._waiting:
            oldest = self._waiting.popleft()
            await self._take_in(oldest.island, oldest.candidate, await oldest.verdict)
            self.n_turns += 1
        else:
            return await self._rest()
        return True

    async def _due_call(self) -> _Call | None:
        """The answer whose turn it is. Without a verdict to wait for, the next that comes, while there is a budget."""
        if self._talk is None:
            return None
        found = self._next_call()
        while found is None and not self._waiting and any(call.turn is None for call in self._calls):
            if self._budget.is_over():
                return None
            coming = [call.outcome for call in self._calls if not call.outcome.done()]
            await asyncio.wait(coming, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            found = self._next_call()
        if found is not None:
            self._calls.remove(found)
        return found

    def _next_call(self) -> _Call | None:
        live = (call for call in self._calls if call.turn is None and call.outcome.done() and self._is_first(call))
        recorded = (call for call in self._calls if call.turn == self.n_turns)
        return next(recorded, None) or next(live, None)

    def _is_first(self, call: _Call) -> bool:
        """Of equal questions of one island the one that was asked first is answered first."""
        mine = (call.island, call.question.request.prompt_hash)
        return next(c for c in self._calls if (c.island, c.question.request.prompt_hash) == mine) is call

    async def _take_answer(self, call: _Call) -> None:
        assert self._talk is not None
        outcome = await call.outcome
        self._talk.client.taken_in(call.question.request, self.n_turns)
        self.n_turns += 1
        telling = self._islands[call.island].answered.remote(call.question.dialogue_id, outcome)
        candidate: Candidate | None = await answer(telling)
        await self._talk.on_answer(call.question, outcome, candidate)
        if isinstance(outcome, Failure):
            self._fail(call.island, outcome)
        if candidate is not None and self._budget.take(1):
            self._send(call.island, candidate)

    def _fail(self, index: int, failure: Failure) -> None:
        self._paused_until[index] = self.n_turns + PAUSE_TURNS
        if is_for_good(failure) and self._talk is not None and not self._is_silent:
            self._talk.on_silence(failure.reason)
            self._is_silent = True

    async def _rest(self) -> bool:
        """Nothing is under way: whether a model may be asked again, after a pause."""
        if self._budget.is_over() or self._talk is None or self._is_silent:
            return False
        if not any(turn > self.n_turns for turn in self._paused_until.values()):
            return False
        for _ in range(round(PAUSE_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            if self._budget.is_over():
                return False
        self._paused_until.clear()
        return True

    @staticmethod
    async def _drop(left: Sequence[_Call | _Waiting]) -> None:
        tasks: list[asyncio.Task[Any]] = [one.outcome if isinstance(one, _Call) else one.verdict for one in left]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


class FirstTold:
    """Which of several equal programs of a run is the original: the one that is told first, whichever was judged."""

    def __init__(self) -> None:
        self._asked: set[str] = set()  # program ids
        self._first: dict[str, str] = {}  # program id by work

    def asked(self, candidates: Iterable[Candidate]) -> None:
        self._asked.update(candidate.program_id for candidate in candidates)

    def named(self, verdict: Verdict) -> Verdict:
        """The verdict, a repeat of whatever was told first; a repeat of another run stays one."""
        if verdict.duplicate_of and verdict.duplicate_of not in self._asked:
            return verdict
        work = verdict.fingerprint or verdict.program_id
        first = self._first.get(work, "")
        self._first.setdefault(work, verdict.program_id)
        return verdict.model_copy(update={"duplicate_of": first})


def digest_of(evaluations: Sequence[Evaluation]) -> str:
    """Equal for two runs that judged the same programs in the same order with the same results, second looks left
    out. What a run is called, when it was and how long anything took has no part in it."""
    own = [e for e in evaluations if e.candidate.lineage.operator != CONFIRM]
    return content_hash(*(part for e in own for part in _digested(e)))[:16]


def _digested(evaluation: Evaluation) -> list[str]:
    lineage, verdict = evaluation.candidate.lineage, evaluation.verdict
    made = [str(evaluation.candidate.island), verdict.program_id, lineage.operator, lineage.technique, lineage.detail]
    latency = "" if verdict.latency is None else repr(verdict.latency.device_us)
    return [*made, *lineage.parents, verdict.outcome, verdict.reason, latency, verdict.duplicate_of]

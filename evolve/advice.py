"""Advice on its way: what reflection and the judge find goes from islands to the archive, and to the other islands.

Nothing here is told to the judging of candidates, and nothing that ranks them asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from db.records import Evaluation
from db.reflections import Wanted
from evolve.cluster import answer
from evolve.correspondence import Client
from evolve.reflections import Left, continued
from islands.dialogues import Question
from islands.llm.exchange import Failure
from islands.operators.llm import ADVISERS
from islands.reflection import Findings, Taught

LAST_ADVICE_S = 120.0
"""How long a run may go on for an opinion on its best program, and to look back, once its search is over."""

N_ANSWERS = 2  # one that cannot be read goes back once
POLL_S = 0.25


class Advice:
    """Keeps what models that look back find in one run.

    Args:
        best: the best program so far.
        is_judging: whether opinions on best programs are wanted.
    """

    def __init__(
        self,
        run_id: str,
        archive: Any,
        islands: Sequence[Any],
        best: Callable[[], Evaluation | None],
        *,
        is_judging: bool,
    ) -> None:
        self._run_id = run_id
        self._archive = archive
        self._islands = list(islands)
        self._best = best
        self._is_judging = is_judging
        self._considered: set[str] = set()  # program ids

    async def taught(self, prior: Taught) -> list[Taught]:
        """What each island was taught before this sitting: before the run, and in earlier sittings."""
        wanted = Wanted(run_id=self._run_id)
        asked = [self._archive.lessons, self._archive.explanations, self._archive.learnt_techniques]
        kept = [answer(method.remote(wanted)) for method in asked]
        left = Left(*await asyncio.gather(*kept, answer(self._archive.opinions.remote(None, self._run_id))))
        return [continued(prior, index, left) for index in range(len(self._islands))]

    async def hear(self, question: Question) -> None:
        """An answer was taken in: keeps what was found, if it looked back, and names a new best program."""
        if question.request.operator in ADVISERS:
            await self.take_in(question.request.island)
        await self.look()

    async def look(self) -> None:
        """Has the island of the best program ask about it, once."""
        best = self._best()
        if self._is_judging and best is not None and best.verdict.program_id not in self._considered:
            self._considered.add(best.verdict.program_id)
            await answer(self._islands[best.candidate.island].consider.remote(best))

    async def take_in(self, *indices: int) -> Findings:
        """Keeps what islands found, all of them unless named, and lets the others hear of it."""
        everything = Findings()
        for index in indices or range(len(self._islands)):
            found: Findings = await answer(self._islands[index].findings.remote())
            everything = everything.plus(found)
            for reflection in found.reflections:
                await answer(self._archive.add_reflection.remote(reflection))
            if found.opinions:
                await answer(self._archive.add_opinions.remote(found.opinions))
            if found.techniques or found.opinions:
                others = [island for k, island in enumerate(self._islands) if k != index]
                await asyncio.gather(*(answer(island.hear.remote(found)) for island in others))
        return everything

    async def ask_last(self, client: Client, is_over: Callable[[], bool], *, reflect_s: float | None = None) -> None:
        """Once a search is over: asks about its best program, if nobody did, and what the attempts teach that nobody
        looked back at.

        Args:
            is_over: when to give up.
            reflect_s: seconds left to look back, None for as many as an opinion has.
        """
        best = self._best() if self._is_judging else None
        limit_s = LAST_ADVICE_S if reflect_s is None else min(LAST_ADVICE_S, reflect_s)
        asking = [] if best is None else [_within(LAST_ADVICE_S, self._ask_judge(client, best), is_over)]
        n_reflecting = len(self._islands) if limit_s > 0 else 0
        asking += [_within(limit_s, self._ask_to_reflect(client, k), is_over) for k in range(n_reflecting)]
        await asyncio.gather(*asking)

    async def _ask_judge(self, client: Client, best: Evaluation) -> None:
        index = best.candidate.island
        await self._ask(client, index, lambda island: island.judge_question.remote(best))

    async def _ask_to_reflect(self, client: Client, index: int) -> None:
        await self._ask(client, index, lambda island: island.reflect_question.remote())

    async def _ask(self, client: Client, index: int, next_question: Callable[[Any], Any]) -> None:
        """Asks an island's question until something is found."""
        island = self._islands[index]
        for _ in range(N_ANSWERS):
            question: Question | None = await answer(next_question(island))
            if question is None:
                return
            outcome = await client.complete(question.request)
            await answer(island.answered.remote(question.dialogue_id, outcome))
            found = await self.take_in(index)
            if found.opinions or found.reflections or isinstance(outcome, Failure):
                return


async def _within(limit_s: float, asking: Coroutine[Any, Any, None], is_over: Callable[[], bool]) -> None:
    """Lets something be asked, until it is over or the time is."""
    task, end = asyncio.create_task(asking), time.monotonic() + limit_s
    while not task.done():
        await asyncio.wait({task}, timeout=POLL_S)
        if not task.done() and (is_over() or time.monotonic() >= end):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return
    task.result()

"""How a run that starts from no program comes to its first one, and how every island gets it.

The first correct program becomes a seed of the other islands: a copy that takes the verdict of the original and is kept
in the archive. Migration would reach them later, or never where nothing is sent, and a resumed run would not find them
as they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from db.records import Candidate, Evaluation
from evolve.budget import Budget
from evolve.cluster import answer
from evolve.correspondence import is_for_good
from evolve.events import NoAnswer, OnEvent
from evolve.stopping import NO_FIRST_PROGRAM, Patience
from islands.llm.exchange import Failure, Outcome
from islands.seed import Seed
from islands.summary import IslandSummary

Settle = Callable[[int, Sequence[Candidate]], Awaitable[object]]


class Founding:
    """The time before every island has a program to start from. `is_over` from the start where a run has seeds.

    Args:
        settle: judges candidates of an island, keeps the verdicts and tells them.
        patience: of a run that starts from nothing; None waits until the budget ends it.
    """

    def __init__(
        self, islands: Sequence[Any], budget: Budget, settle: Settle, on_event: OnEvent, patience: Patience | None
    ) -> None:
        self._islands = list(islands)
        self._budget = budget
        self._settle = settle
        self._on_event = on_event
        self._patience = patience
        self._has_found = False
        self._n_judged_now = 0  # candidates that models wrote
        self._told: set[str] = set()
        self.is_over = False

    def skip(self) -> None:
        """The islands have programs already."""
        self._has_found = self.is_over = True

    def hear(self, outcome: Outcome, candidate: Candidate | None) -> None:
        """What came of a question to a language model, and the candidate that is judged now, if any."""
        if self._has_found:
            return
        self._n_judged_now += candidate is not None
        if isinstance(outcome, Failure) and not is_for_good(outcome) and outcome.reason not in self._told:
            self._told.add(outcome.reason)
            self._on_event(NoAnswer(reason=outcome.reason))
        if self._patience is not None:
            self._patience.hear(outcome)
            self.check_patience()

    def check_patience(self) -> None:
        """End the run where nothing is to be hoped for; to be asked now and then, because silence says nothing."""
        if self._has_found or self._n_judged_now or self._patience is None:
            return
        if self._patience.is_over:
            self._budget.stop(NO_FIRST_PROGRAM)

    async def look_at(self, judged: Sequence[Evaluation]) -> None:
        """Give the first correct program to all islands; of later ones it takes no notice."""
        if self._has_found:
            return
        self._n_judged_now = max(0, self._n_judged_now - len(judged))
        first = next((e for e in judged if e.verdict.is_correct), None)
        if first is not None:
            self._has_found = True
            others = [index for index in range(len(self._islands)) if index != first.candidate.island]
            await self._spread(first, others)
            self.is_over = True

    async def take_up(self, first: Evaluation | None, islands: Sequence[IslandSummary]) -> None:
        """Go on where an earlier sitting was: islands that still have nothing get the program that others have."""
        if first is not None:
            self._has_found = True
            await self._spread(first, [i.island for i in islands if i.best_latency_us is None])
            self.is_over = True

    async def _spread(self, first: Evaluation, targets: Sequence[int]) -> None:
        seed = Seed(source=first.candidate.source, origin=f"program {first.candidate.program_id}")
        for index in targets:
            if not self._budget.hold(1):
                return
            candidates = await answer(self._islands[index].seed.remote([seed]))
            self._budget.use(len(candidates), held=1)
            if candidates:
                await self._settle(index, candidates)

"""Beam search in rounds, as the kernel papers do it, without the repairs that need a language model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from db.records import SEED
from islands.bandit import Bandit, UcbBandit
from islands.grid import Occupant
from islands.knowledge import PriorKnowledge
from islands.operators.base import Operator
from islands.settings import IslandSettings
from islands.strategies.base import Draw, Stock, Strategy, Trial

WIDTH = 4
N_ROUNDS = 5
PLANS_PER_ROUND = 4  # for each chain
PATIENCE = 2  # rounds without improvement
UCB_C = 1.4


@dataclass(slots=True)
class _Chain:
    """One line of descent: the program that it edits in this round, and what came of it."""

    head: Occupant
    n_left: int = PLANS_PER_ROUND
    children: list[Occupant] = field(default_factory=list)

    @property
    def best(self) -> Occupant:
        return min([self.head, *self.children], key=lambda occupant: occupant.rank)


class Beam(Strategy):
    """Four chains, five rounds, four plans a chain and round; UCB1 with c = 1.4 chooses the operators.

    A round ends when all of its candidates are judged. The next one starts from the best program of every chain and,
    where chains share one, from the best of the rest. Two rounds without improvement end the search.
    """

    name = "beam"

    def start(
        self, operators: Sequence[Operator], settings: IslandSettings, prior: PriorKnowledge | None = None
    ) -> None:
        super().start(operators, settings, prior)
        self._margin = settings.stagnation_margin
        self._chains: list[_Chain] = []
        self._n_pending = 0
        self._n_rounds = 0
        self._n_idle_rounds = 0
        self._best_us = float("inf")
        self._founders: list[Occupant] = []
        self._chain_of: dict[str, _Chain] = {}  # candidates in flight

    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        if not self._chains:
            if stock.n_in_flight:
                return None  # seeds are being judged: the best of them start together
            self._begin(self._founders or stock.elites)
        while not self.is_finished():
            if found := self._draw_in_round(rng):
                return found
            if self._chain_of:
                return None
            self._end_round()
        return None

    def asked(self, candidate_id: str, arm: str, parents: tuple[str, ...]) -> None:
        super().asked(candidate_id, arm, parents)
        if not self._chains and self._founders:  # on resume, nothing was drawn before
            self._begin(self._founders)
        chain = self._chain_led_by(parents[0])
        if chain is None and self._chains:  # on resume: a round ended early, which the archive does not tell
            self._end_round()
            chain = self._chain_led_by(parents[0])
        if chain is not None:
            chain.n_left -= 1
            self._chain_of[candidate_id] = chain

    def told(self, trial: Trial) -> None:
        super().told(trial)
        if trial.arm == SEED and trial.child:
            self._founders.append(trial.child)
        chain = self._chain_of.pop(trial.candidate_id, None)
        if chain is not None and trial.child:
            chain.children.append(trial.child)

    def is_finished(self) -> bool:
        return self._n_rounds >= N_ROUNDS or self._n_idle_rounds >= PATIENCE

    def _make_bandit(self, settings: IslandSettings) -> Bandit:  # noqa: ARG002
        return UcbBandit(UCB_C)

    def _begin(self, founders: Sequence[Occupant]) -> None:
        """Starts every chain: from the fastest founders, in turn when there are fewer than chains."""
        heads = sorted(founders, key=lambda occupant: occupant.rank)[:WIDTH]
        self._chains = [_Chain(heads[k % len(heads)]) for k in range(WIDTH)]
        self._best_us = heads[0].latency_us

    def _draw_in_round(self, rng: random.Random) -> Draw | None:
        heads = [chain.head for chain in self._chains]
        for chain in self._chains:
            if chain.n_left and (found := self._draw_from(chain.head, heads, rng)):
                return found
            chain.n_left = 0  # its plans are made, or nothing new can be made of its head
        return None

    def _end_round(self) -> None:
        heads = self._survivors()
        best_us = min(head.latency_us for head in heads)
        improved = best_us <= self._best_us * (1 - self._margin)
        self._n_idle_rounds = 0 if improved else self._n_idle_rounds + 1
        self._n_rounds += 1
        self._best_us = min(self._best_us, best_us)
        self._chains = [_Chain(heads[k % len(heads)]) for k in range(WIDTH)]

    def _survivors(self) -> list[Occupant]:
        """The best program of every chain, each once, then the best of the rest until the beam is full."""
        chosen = {chain.best.program_id: chain.best for chain in self._chains}
        everybody = [occupant for chain in self._chains for occupant in (chain.head, *chain.children)]
        for occupant in sorted(everybody, key=lambda occupant: occupant.rank):
            if len(chosen) < WIDTH:
                chosen.setdefault(occupant.program_id, occupant)
        return list(chosen.values())

    def _chain_led_by(self, program_id: str) -> _Chain | None:
        return next((chain for chain in self._chains if chain.n_left and chain.head.program_id == program_id), None)

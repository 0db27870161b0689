"""The default: exploit the fastest elites, keep the other cells alive, and let knowledge say what should pay."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from islands.edits import EditMemory
from islands.grid import Occupant
from islands.knowledge import KnowledgeBase, KnowledgeSummary, PriorKnowledge
from islands.operators.base import Operator, Proposal
from islands.selection import CuriositySelector, EliteUniformSelector, Selector, SpeedWeightedSelector
from islands.settings import IslandSettings
from islands.strategies.advisers import make_adviser
from islands.strategies.base import Draw, Expectation, Stock, Strategy, Trial

LITTER = 4
"""Draws of a batch from one parent: taking a program apart costs more than every edit of it."""


class MapElites(Strategy):
    """Steady-state MAP-Elites. Each draw takes a selection policy by weight, then a parent, then an operator.

    While the best program keeps getting faster, parents are drawn from the fastest elites; the longer it does not, the
    more the weights of the settings hold (fully after `widening` verdicts). Parents of which no operator has anything
    new to make are passed over. Edits that lost before are rarely tried again, until nothing else is left.
    """

    name = "map-elites"

    def start(
        self, operators: Sequence[Operator], settings: IslandSettings, prior: PriorKnowledge | None = None
    ) -> None:
        super().start(operators, settings, prior)
        self._adviser = make_adviser(self._operators, settings, prior)
        weights = settings.selection
        self._fastest = SpeedWeightedSelector(settings.n_exploited)
        self._policies: list[tuple[Selector, float]] = [
            (self._fastest, weights.speed_weighted),
            (CuriositySelector(), weights.curiosity),
            (EliteUniformSelector(), weights.elite_uniform),
        ]
        self._parent_id, self._litter = "", 0  # the parent of the last draw, and the draws that it has left
        self._edits = EditMemory()
        self._is_picky = True
        self._declined: dict[tuple[str, tuple[str, ...]], None] = {}  # in order
        self._widening = settings.widening
        self._margin = settings.stagnation_margin
        self._best_us = math.inf
        self._n_idle = 0  # verdicts since the best program got faster

    def begin_batch(self) -> None:
        self._litter = 0

    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        parent = self._last_parent(stock)
        if parent is None:
            open_elites = self._open_elites(stock) or self._reopen(stock)
            if not open_elites:
                return None
            parent = self._selector(rng).select(open_elites, rng)
            self._parent_id, self._litter = parent.program_id, LITTER
        self._litter -= 1
        return self._draw_from(parent, stock.elites, rng)

    def accepts(self, draw: Draw, proposal: Proposal, rng: random.Random) -> bool:
        is_welcome = not self._is_picky or (
            self._edits.lets_through(draw.arm, proposal.detail, rng) and self._adviser.accepts(draw, proposal)
        )
        if not is_welcome:
            self._declined[draw.arm, draw.parent_ids] = None
        return is_welcome

    def told(self, trial: Trial) -> None:
        super().told(trial)
        if trial.arm in self._operators:
            self._adviser.told(trial)
        child_us = trial.child.latency_us if trial.child else None
        self._edits.learn(trial.arm, trial.detail, trial.parent_us, child_us)
        for selector, _ in self._policies:
            selector.told(trial.parents, trial.status)
        self._n_idle += 1
        if child_us is not None and child_us <= self._best_us * (1 - self._margin):
            self._best_us = child_us
            self._n_idle = 0
            self._is_picky = True

    def propose(self, draw: Draw, is_new: Callable[[Proposal], bool], rng: random.Random) -> Proposal | None:
        return self._adviser.best_of(draw, lambda: super(MapElites, self).propose(draw, is_new, rng), is_new, rng)

    def expects(self, draw: Draw) -> Expectation:
        return self._adviser.expects(draw)

    def asked(self, candidate_id: str, arm: str, parents: tuple[str, ...]) -> None:
        super().asked(candidate_id, arm, parents)
        if arm in self._operators:
            self._adviser.asked(arm)

    @property
    def knowledge(self) -> KnowledgeBase | None:
        return self._adviser.knowledge

    def summary(self) -> KnowledgeSummary | None:
        return self._adviser.summary()

    def _choose(self, parent: Occupant, arms: Sequence[str], rng: random.Random) -> str:
        return self._adviser.choose(parent, arms, rng)

    def _last_parent(self, stock: Stock) -> Occupant | None:
        """The parent of the last draw, where it has draws left and anything new."""
        if not self._litter:
            return None
        parent = next((elite for elite in stock.elites if elite.program_id == self._parent_id), None)
        return parent if parent is not None and self._openings.has_any(parent, stock.elites) else None

    def _open_elites(self, stock: Stock) -> list[Occupant]:
        return [elite for elite in stock.elites if self._openings.has_any(elite, stock.elites)]

    def _reopen(self, stock: Stock) -> list[Occupant]:
        """Nothing is left but what was declined: takes that up again, until there is a faster program."""
        self._is_picky = False
        for arm, parents in self._declined:
            self._openings.reopen(arm, parents)
        self._declined.clear()
        return self._open_elites(stock)

    def _selector(self, rng: random.Random) -> Selector:
        if rng.random() * self._widening >= self._n_idle:
            return self._fastest
        policies, weights = zip(*self._policies, strict=True)
        chosen: Selector = rng.choices(policies, weights=weights)[0]
        return chosen

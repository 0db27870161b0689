"""The default: exploit the fastest elites, keep the other cells alive, and let the bandit learn what pays."""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.bandit import AdaptiveBandit, Bandit
from islands.grid import Occupant
from islands.operators.base import Operator
from islands.selection import CuriositySelector, EliteUniformSelector, Selector, SpeedWeightedSelector
from islands.settings import IslandSettings
from islands.strategies.base import Draw, Stock, Strategy, Trial


class MapElites(Strategy):
    """Steady-state MAP-Elites. Each draw takes one selection policy by weight, then a parent, then an operator.

    Parents of which every operator has nothing new to make are passed over, so a small grid is searched to its end.
    """

    name = "map-elites"

    def start(self, operators: Sequence[Operator], settings: IslandSettings) -> None:
        super().start(operators, settings)
        weights = settings.selection
        self._policies: list[tuple[Selector, float]] = [
            (SpeedWeightedSelector(settings.n_exploited), weights.speed_weighted),
            (CuriositySelector(), weights.curiosity),
            (EliteUniformSelector(), weights.elite_uniform),
        ]

    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        open_elites = [elite for elite in stock.elites if self._has_open_draws(elite, stock.elites)]
        if not open_elites:
            return None
        parent = self._select(open_elites, rng)
        return self._draw_from(parent, stock.elites, rng)

    def told(self, trial: Trial) -> None:
        super().told(trial)
        for selector, _ in self._policies:
            selector.told(trial.parents, trial.status)

    def _make_bandit(self, settings: IslandSettings) -> Bandit:
        costs = {name: operator.cost for name, operator in self._operators.items()}
        return AdaptiveBandit(costs, exploration=settings.bandit_exploration)

    def _select(self, elites: list[Occupant], rng: random.Random) -> Occupant:
        selectors = [selector for selector, _ in self._policies]
        selector = rng.choices(selectors, weights=[weight for _, weight in self._policies])[0]
        return selector.select(elites, rng)

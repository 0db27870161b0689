"""Strategies: which parents are used when. `map-elites` searches; the others are baselines on the same gates.

A *strategy* turns what an island has into *draws*: an operator and its parents. Strategies are one file each.
"""

from islands.registry import look_up
from islands.strategies.base import Draw, Stock, Strategy, Trial
from islands.strategies.beam import Beam
from islands.strategies.best_of_n import BestOfN
from islands.strategies.greedy import Greedy
from islands.strategies.map_elites import MapElites

STRATEGIES: dict[str, type[Strategy]] = {strategy.name: strategy for strategy in (MapElites, BestOfN, Greedy, Beam)}


def make_strategy(name: str) -> Strategy:
    """A strategy by its name. Raises ConfigError when there is none of this name."""
    return look_up("strategy", name, STRATEGIES)()


__all__ = ["STRATEGIES", "Draw", "Stock", "Strategy", "Trial", "make_strategy"]

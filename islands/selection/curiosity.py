"""Elites whose offspring entered the grid are likelier, and so are those that were rarely tried.

The curiosity score of Cully and Demiris, Quality and Diversity Optimization, arXiv 1708.09251, section IV: plus 1 when
an offspring enters the grid, minus 0.5 when it does not, never below a floor.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.grid import AddStatus, Occupant
from islands.selection.base import Selector

START = 1.0
FLOOR = 0.1
REWARD = 1.0
PENALTY = 0.5


class CuriositySelector(Selector):
    """Draws in proportion to the curiosity score. A program that has had no offspring yet scores 1."""

    name = "curiosity"

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}

    def select(self, elites: Sequence[Occupant], rng: random.Random) -> Occupant:
        return rng.choices(elites, weights=[self._scores.get(elite.program_id, START) for elite in elites])[0]

    def told(self, parents: Sequence[str], status: AddStatus) -> None:
        change = REWARD if status > AddStatus.REJECTED else -PENALTY
        for parent in parents:
            self._scores[parent] = max(FLOOR, self._scores.get(parent, START) + change)

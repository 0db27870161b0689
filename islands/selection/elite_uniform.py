"""Every elite is equally likely: the selection of the first MAP-Elites (Mouret and Clune, arXiv 1504.04909)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.grid import Occupant
from islands.selection.base import Selector


class EliteUniformSelector(Selector):
    """Draws any elite, however slow: what keeps rarely visited cells alive."""

    name = "elite_uniform"

    def select(self, elites: Sequence[Occupant], rng: random.Random) -> Occupant:
        return rng.choice(elites)

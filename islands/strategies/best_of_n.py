"""N independent tries on the seeds, no evolution: the baseline that any search has to beat."""

from __future__ import annotations

import random

from islands.strategies.base import Draw, Stock, Strategy


class BestOfN(Strategy):
    """Every candidate is one edit away from a seed; operators are drawn evenly."""

    name = "best-of-n"

    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        seeds = list(stock.founders or stock.elites)
        for seed in rng.sample(seeds, len(seeds)):
            if found := self._draw_from(seed, seeds, rng):
                return found
        return None

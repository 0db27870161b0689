"""Hill climbing: always from the fastest program."""

from __future__ import annotations

import random

from islands.strategies.base import Draw, Stock, Strategy


class Greedy(Strategy):
    """Edits the fastest program until nothing new can be made of it; operators are drawn evenly."""

    name = "greedy"

    def draw(self, stock: Stock, rng: random.Random) -> Draw | None:
        return self._draw_from(stock.elites[0], stock.elites[1:], rng)

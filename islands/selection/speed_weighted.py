"""Faster elites are likelier, and only the fastest few are drawn at all."""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.grid import Occupant
from islands.selection.base import Selector


class SpeedWeightedSelector(Selector):
    """Draws among the `n_fastest` elites, each with weight (fastest latency / its latency) ** `sharpness`.

    With the default sharpness an elite that is 9% slower than the fastest, one cell away, is half as likely.
    """

    name = "speed_weighted"

    def __init__(self, n_fastest: int = 3, sharpness: float = 8.0) -> None:
        self._n_fastest = n_fastest
        self._sharpness = sharpness

    def select(self, elites: Sequence[Occupant], rng: random.Random) -> Occupant:
        fastest = elites[: self._n_fastest]
        best_us = fastest[0].latency_us
        return rng.choices(fastest, weights=[(best_us / elite.latency_us) ** self._sharpness for elite in fastest])[0]

"""What a topology is."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar


class Topology(ABC):
    """Says where migrants go. Elites of any island must be able to reach every other one, over several migrations."""

    name: ClassVar[str]

    @abstractmethod
    def targets(self, island: int, n_islands: int, rng: random.Random) -> list[int]:
        """The islands that the migrants of `island` go to now, in ascending order: never itself, none twice.

        Raises:
            ValueError: `island` is not in [0, n_islands).
        """


def check_island(island: int, n_islands: int) -> None:
    """Raises ValueError when there is no such island."""
    if not 0 <= island < n_islands:
        raise ValueError(f"island must be in [0, {n_islands}), got {island}")

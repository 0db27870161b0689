"""What a selector is."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from islands.grid import AddStatus, Occupant


class Selector(ABC):
    """Draws parents. The same elites, history and state of `rng` give the same parent."""

    name: ClassVar[str]

    @abstractmethod
    def select(self, elites: Sequence[Occupant], rng: random.Random) -> Occupant:
        """One of the elites, of which there is at least one, fastest first."""

    def told(self, parents: Sequence[str], status: AddStatus) -> None:  # noqa: B027 - most policies have no memory
        """What became of an offspring of the programs with these ids."""

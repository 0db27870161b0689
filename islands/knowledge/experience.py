"""The experience memory: the few attempts that stood out, for whoever decides what to try next."""

from __future__ import annotations

import math
from collections import deque
from enum import StrEnum
from typing import NamedTuple

from islands.knowledge.situation import Attempt, levels_of

CAPACITY = 8
WORTH_KEEPING_OCTAVES = (math.log2(1.05), -math.log2(1.20))
"""A speed-up of at least 1.05 or a slow-down of at least 1.20 is worth remembering."""

NEWS_OCTAVES = 0.07
"""What differs by less from what is remembered of the same technique in the same state (5%) is nothing new."""


class Noted(StrEnum):
    """What became of an experience that was offered."""

    APPENDED = "appended"
    REPLACED = "replaced"
    SKIPPED = "skipped"


class Experience(NamedTuple):
    """An attempt that stood out."""

    technique: str
    state: str
    move: str
    octaves: float
    cause: str

    @property
    def speedup(self) -> float:
        return float(2**self.octaves)


class ExperienceMemory:
    """At most `capacity` experiences, first in, first out; one for each technique and state."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._held: deque[Experience] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> tuple[Experience, ...]:
        """The oldest first."""
        return tuple(self._held)

    def offer(self, attempt: Attempt) -> Noted:
        """Keeps an attempt that stood out: beside the others, or in the place of what it makes out of date."""
        if attempt.octaves is None or not _stands_out(attempt.octaves):
            return Noted.SKIPPED
        new = Experience(attempt.technique, attempt.situation.state, attempt.move, attempt.octaves, attempt.cause)
        old = next((e for e in self._held if (e.technique, e.state) == (new.technique, new.state)), None)
        if old is None:
            self._held.append(new)
            return Noted.APPENDED
        if old.move == new.move and abs(old.octaves - new.octaves) < NEWS_OCTAVES:
            return Noted.SKIPPED
        if old.octaves > 0 > new.octaves and old.move != new.move:  # that one move loses does not undo that another won
            return Noted.SKIPPED
        self._held.remove(old)
        self._held.append(new)
        return Noted.REPLACED

    def recall(self, technique: str, state: str, move: str) -> float | None:
        """Octaves that this move won or lost on a kernel of this kind with this bottleneck; None if not remembered."""
        level = levels_of(state)[-2:][0]
        for held in reversed(self._held):
            if (held.technique, held.move) == (technique, move) and levels_of(held.state)[-2:][0] == level:
                return held.octaves
        return None


def _stands_out(octaves: float) -> bool:
    won, lost = WORTH_KEEPING_OCTAVES
    return octaves >= won or octaves <= lost

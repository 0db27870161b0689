"""Keeps a search from going in circles: the same two things over and over are forbidden until a third was tried."""

from __future__ import annotations

from collections import deque

WINDOW = 6
FEWEST = 2


class DiversityEnforcer:
    """Watches the directions of the last six verdicts: techniques with where they went, "tile_size up"."""

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=WINDOW)

    def judged(self, direction: str) -> None:
        self._recent.append(direction)

    @property
    def excluded(self) -> frozenset[str]:
        """Directions that may not be taken now: the recent ones, where the last six hold two or fewer."""
        distinct = frozenset(self._recent)
        return distinct if len(self._recent) == WINDOW and len(distinct) <= FEWEST else frozenset()

"""One island in the middle: what any of them finds is everywhere after two migrations."""

from __future__ import annotations

import random

from islands.migration.base import Topology, check_island

HUB = 0


class Star(Topology):
    """The hub, island 0, sends to all others, and they send to it."""

    name = "star"

    def targets(self, island: int, n_islands: int, rng: random.Random) -> list[int]:  # noqa: ARG002
        check_island(island, n_islands)
        return [other for other in range(n_islands) if other != HUB] if island == HUB else [HUB]

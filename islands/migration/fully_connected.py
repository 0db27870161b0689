"""Everybody sends to everybody: fastest to spread, for short budgets."""

from __future__ import annotations

import random

from islands.migration.base import Topology, check_island


class FullyConnected(Topology):
    """Each island sends to all others. An elite is everywhere after one migration."""

    name = "fully-connected"

    def targets(self, island: int, n_islands: int, rng: random.Random) -> list[int]:  # noqa: ARG002
        check_island(island, n_islands)
        return [other for other in range(n_islands) if other != island]

"""Each island sends to the next: slow to spread, so islands stay different for long."""

from __future__ import annotations

import random

from islands.migration.base import Topology, check_island


class Ring(Topology):
    """Island i sends to i + 1, the last one to the first. An elite crosses n islands in n - 1 migrations."""

    name = "ring"

    def targets(self, island: int, n_islands: int, rng: random.Random) -> list[int]:  # noqa: ARG002
        check_island(island, n_islands)
        return [(island + 1) % n_islands] if n_islands > 1 else []

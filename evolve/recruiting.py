"""GPUs that join the cluster during a run are put to work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from db.errors import ClusterError
from evolve import cluster
from evolve.crew import Crew
from evolve.search import Search

LOOK_S = 5.0
N_LOOKS = 2  # in a row that find a GPU free: evaluators that died on another node may be about to take it


@contextlib.asynccontextmanager
async def recruiting(crew: Crew, search: Search) -> AsyncIterator[None]:
    """Inside, evaluators are started on GPUs that are free, and the search keeps them busy."""
    task = asyncio.create_task(_recruit(crew, search))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _recruit(crew: Crew, search: Search) -> None:
    n_useless = 0
    seen = [0] * N_LOOKS
    while True:
        await asyncio.sleep(LOOK_S)
        n_free = await asyncio.to_thread(cluster.count_free_gpus)
        n_useless = min(n_useless, n_free)  # a node with them went
        seen = [*seen[1:], n_free - n_useless]
        if (n := min(*seen, crew.n_wanted)) > 0:
            with contextlib.suppress(ClusterError):  # a node went again: the next look tells
                n_useless += await crew.recruit(n)
            seen = [0] * N_LOOKS
            search.widen(crew.chains_per_island)

"""The actor is the island, elsewhere: records go in and come out whole, and the real operators are on board."""

from __future__ import annotations

from typing import Any

import pytest
from support.landscape import correct
from support.parents import kernel_sources

from db.records import EntryPoint, Evaluation, PrecisionClass
from islands.grid import AddStatus
from islands.seed import Seed
from islands.settings import IslandSettings

SOURCE = kernel_sources()["row_softmax"]


@pytest.fixture
def start(ray_session: None) -> Any:
    """Starts an island actor with some number."""
    from islands.actor import IslandActor

    def make(island_id: int) -> Any:
        return IslandActor.options(num_cpus=0).remote(  # type: ignore[attr-defined]
            island_id=island_id,
            run_id="run",
            problem_id="problem",
            entry_point=EntryPoint.FUNCTION,
            strategy="map-elites",
            rng_seed=1,
            settings=IslandSettings(migration_interval=3),
            precision=PrecisionClass.REFERENCE,
        )

    return make


def test_an_island_lives_in_a_process_of_its_own(start: Any) -> None:
    import ray

    def answer(reference: Any) -> Any:
        return ray.get(reference, timeout=60)

    one, other = start(0), start(1)
    (seed,) = answer(one.seed.remote([Seed(source=SOURCE)]))
    assert answer(one.tell.remote([correct(seed, 100.0)])) == [AddStatus.NEW]
    assert answer(one.emigrate.remote()) == []  # not due yet

    asked = answer(one.ask.remote(8))
    assert len(asked) == 8
    verdicts = [correct(c, 30.0 * (k + 1)) for k, c in enumerate(asked)]
    answer(one.tell.remote(verdicts))
    migrants = answer(one.emigrate.remote())
    assert [m.verdict.latency.device_us for m in migrants] == [30.0, 60.0]
    assert answer(other.immigrate.remote(migrants)) == 2
    assert answer(other.summary.remote()).best_latency_us == 30.0

    again = start(0)
    known = [
        Evaluation(candidate=c, verdict=v)
        for c, v in zip([seed, *asked], [correct(seed, 100.0), *verdicts], strict=True)
    ]
    answer(again.restore.remote(known))
    assert answer(again.summary.remote()) == answer(one.summary.remote())
    assert not answer(again.is_exhausted.remote())
    for actor in (one, other, again):
        ray.kill(actor)

"""Islands on a made-up landscape, and the shortest loop that searches with them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from db.records import Candidate, EntryPoint, Evaluation, Lineage, PrecisionClass, Verdict
from islands.grid import Occupant
from islands.island import Island, island_rng
from islands.operators.base import Operator
from islands.seed import Seed
from islands.settings import IslandSettings
from islands.strategies import make_strategy
from support import landscape
from support.landscape import Landscape

RUN = "run"
PROBLEM = "problem"
SEED = Seed(source=landscape.SEED_SOURCE, origin="landscape")


def make_island(
    island_id: int = 0,
    *,
    strategy: str = "map-elites",
    rng_seed: int = 0,
    operators: Sequence[Operator] | None = None,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    **settings: object,
) -> Island:
    return Island(
        island_id=island_id,
        run_id=RUN,
        problem_id=PROBLEM,
        entry_point=EntryPoint.MODEL,
        operators=landscape.operators() if operators is None else operators,
        strategy=make_strategy(strategy),
        rng=island_rng(rng_seed, island_id),
        settings=IslandSettings.model_validate(settings),
        precision=precision,
    )


def search(island: Island, land: Landscape, n: int) -> list[Evaluation]:
    """Seeds an island and drives it: four in flight, told one by one. What was judged, in the order of the verdicts."""
    waiting = island.seed([SEED])
    judged: list[Evaluation] = []
    while len(judged) < n:
        waiting += island.ask(max(0, 4 - len(waiting)))
        if not waiting:
            break
        candidate = waiting.pop(0)
        verdict = land.judge(candidate)
        island.tell([verdict])
        judged.append(Evaluation(candidate=candidate, verdict=verdict))
    return judged


def best_us(judged: Sequence[Evaluation]) -> float:
    """The lowest latency among them."""
    return min(e.verdict.latency.device_us for e in judged if e.verdict.latency)


def candidate(source: str = landscape.SEED_SOURCE, *, number: int = 0, island: int = 0) -> Candidate:
    """A candidate that no island asked."""
    return Candidate(
        candidate_id=f"{RUN}-{island}-{number:06d}",
        run_id=RUN,
        problem_id=PROBLEM,
        island=island,
        source=source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )


def occupant(latency_us: float, *, source: str = "", **verdict: object) -> Occupant:
    """A correct program of its own with this latency; other fields of the verdict by name."""
    made = candidate(source or f"LATENCY = {latency_us!r}\n")
    return Occupant(made, landscape.correct(made, latency_us, **verdict))  # type: ignore[arg-type]


def elites(*latencies_us: float) -> list[Occupant]:
    """Correct programs with these latencies, fastest first."""
    return [occupant(latency_us) for latency_us in sorted(latencies_us)]


def shuffled(items: Sequence[Verdict], seed: int) -> list[Verdict]:
    return random.Random(seed).sample(list(items), len(items))

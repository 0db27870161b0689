"""How many candidates a second an island proposes and takes back, with the real structural operators.

    python -m benchmarks.throughput [--problem softmax] [--candidates 1000] [--batch 8]

The judge is a no-op: it answers at once with a latency made from the program's id, so that grids fill and parents
change as they do in a run. Nothing is compiled, run or stored. One process, one island at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from db.measures import TIERS
from db.records import (
    Candidate,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Outcome,
    Problem,
    Profile,
    Verdict,
)
from evaluators.problems import load_problem
from islands.island import Island, island_rng
from islands.operators import default_operators
from islands.seed import Seed
from islands.settings import IslandSettings
from islands.strategies import make_strategy

BASELINE_US = 500.0
SLOWEST_US = 2000.0


def no_op_verdict(candidate: Candidate) -> Verdict:
    """Right, with a tier and a latency between 250 and 2000 us that are drawn from the program's id."""
    number = int(candidate.program_id, 16)
    latency_us = SLOWEST_US / 2 ** (3 * (number % 10_007) / 10_007)
    return Verdict(
        candidate_id=candidate.candidate_id,
        run_id=candidate.run_id,
        problem_id=candidate.problem_id,
        program_id=candidate.program_id,
        hardware_id="none",
        outcome=Outcome.CORRECT,
        gates=tuple(GateResult(gate=gate, passed=True) for gate in Gate),
        latency=Latency(
            kind=LatencyKind.MODELLED,
            method="model",
            device_us=latency_us,
            low_us=latency_us,
            high_us=latency_us,
            baseline_us=BASELINE_US,
            baseline_name="none",
        ),
        profile=Profile(source="none"),
        tier=TIERS[number % len(TIERS)],
    )


def make_island(problem: Problem, island_id: int, in_flight: int) -> Island:
    """A fresh island of a run, seeded and told."""
    island = Island(
        island_id=island_id,
        run_id="throughput",
        problem_id=problem.problem_id,
        entry_point=problem.entry_point,
        operators=default_operators(),
        strategy=make_strategy("map-elites"),
        rng=island_rng(0, island_id),
        settings=IslandSettings(in_flight=in_flight),
    )
    seeds = island.seed([Seed(source=source, origin=problem.name) for source in problem.seeds])
    island.tell([no_op_verdict(candidate) for candidate in seeds])
    return island


def measure_in_process(problem: Problem, n_candidates: int, batch: int) -> dict[str, Any]:
    """Asks and tells until `n_candidates` went through; a new island takes over when one has nothing new."""
    asked: list[Candidate] = []
    islands = [make_island(problem, 0, batch)]
    started, cpu_started = time.perf_counter(), time.process_time()
    asking_s = telling_s = 0.0
    while len(asked) < n_candidates:
        at = time.perf_counter()
        candidates = islands[-1].ask(batch)
        asking_s += time.perf_counter() - at
        if not candidates:
            islands.append(make_island(problem, len(islands), batch))
            continue
        verdicts = [no_op_verdict(candidate) for candidate in candidates]
        at = time.perf_counter()
        islands[-1].tell(verdicts)
        telling_s += time.perf_counter() - at
        asked += candidates
    return {
        "problem": problem.name,
        "candidates": len(asked),
        "islands": len(islands),
        "batch": batch,
        "per_second": len(asked) / (time.perf_counter() - started),
        "cpu_ms": 1e3 * (time.process_time() - cpu_started) / len(asked),
        "ask_ms": 1e3 * asking_s / len(asked),
        "tell_ms": 1e3 * telling_s / len(asked),
        "techniques": len({candidate.lineage.technique for candidate in asked}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="softmax")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args(arguments)
    figures = measure_in_process(load_problem(options.problem), options.candidates, options.batch)
    print(json.dumps({k: round(v, 3) if isinstance(v, float) and math.isfinite(v) else v for k, v in figures.items()}))


if __name__ == "__main__":
    main()

"""How many candidates a second go through ask, judge, insert and tell, with the real structural operators.

    python -m benchmarks.throughput [--problem softmax] [--candidates 4000] [--islands 4] [--processes 1] [--batch 8]

The judge is a no-op: it answers at once with a latency made from the program's id, so that grids fill and parents
change as they do in a run; nothing is compiled or run. Islands, judge and archive are Ray actors as in a run, islands
share processes as they do there (one for two cores, unless `--processes` says otherwise), and an island hears of a
verdict only after its insert is durable. `--peer` measures openevolve after it, on a local endpoint.
`--in-process` leaves Ray and the archive out: one island, ask and tell alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from benchmarks.peers.openevolve_rate import measure as measure_openevolve
from db.actor import ArchiveActor
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
from evolve.archipelago import Archipelago
from evolve.budget import Budget
from evolve.cluster import connected
from evolve.progress import ProgressMeter
from evolve.run import ignore
from evolve.search import Search
from islands.island import Island, island_rng
from islands.migration import make_topology
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


@ray.remote(num_cpus=0)
class NoOpEvaluator:
    """Answers a batch of candidates at once, from a process of its own."""

    def evaluate(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        return [no_op_verdict(candidate) for candidate in candidates]


class NoOpJudge:
    """The judge of a run, without preparation and without repeats."""

    def __init__(self) -> None:
        self._evaluator = NoOpEvaluator.remote()

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        verdicts: list[Verdict] = await self._evaluator.evaluate.remote(candidates)
        return verdicts

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        return await self.judge(candidates)


async def measure_run(
    problem: Problem, n_candidates: int, batch: int, n_islands: int, n_processes: int, archive: Path
) -> dict[str, Any]:
    """The product's own loop: islands in Ray actors, every insert durable before its island hears of it."""
    store = ArchiveActor.remote(str(archive))
    await store.open.remote()
    made_of = [
        {
            "island_id": index,
            "run_id": "throughput",
            "problem_id": problem.problem_id,
            "entry_point": problem.entry_point,
            "settings": IslandSettings(in_flight=2 * batch),
        }
        for index in range(n_islands)
    ]
    archipelago = Archipelago(made_of, n_processes, store, print)
    budget = Budget(n_candidates)
    search = Search(
        islands=archipelago.islands,
        judge=NoOpJudge(),
        archive=store,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=ignore,
        chains_per_island=2,
        batch=batch,
        stop_when_stagnant=False,
    )
    await search.seed([Seed(source=source, origin=problem.name) for source in problem.seeds])
    started = time.perf_counter()
    await search.run()
    seconds = time.perf_counter() - started
    stored = (await store.query.remote("SELECT count(*), count(DISTINCT candidate_id) FROM evaluations")).rows[0]
    await store.close.remote()
    return {
        "problem": problem.name,
        "islands": n_islands,
        "island_processes": len(archipelago),
        "batch": batch,
        "candidates": int(stored[0]),
        "distinct": int(stored[1]),
        "seconds": seconds,
        "per_second": int(stored[0]) / seconds,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="softmax")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--islands", type=int, default=4)
    processes = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument("--processes", type=int, default=processes, help="that islands share; as many as in a run")
    parser.add_argument("--in-process", action="store_true", help="one island in this process, nothing stored")
    parser.add_argument("--peer", type=int, default=0, metavar="N", help="openevolve beside it, N iterations")
    parser.add_argument("--out", type=Path, help="write the figures to this file too")
    options = parser.parse_args(arguments)
    problem = load_problem(options.problem)
    figures: dict[str, Any] = {}
    if options.in_process:
        figures["in_process"] = measure_in_process(problem, options.candidates, options.batch)
    else:
        with tempfile.TemporaryDirectory() as folder, connected():
            archive = Path(folder) / "throughput.duckdb"
            run = measure_run(problem, options.candidates, options.batch, options.islands, options.processes, archive)
            figures["evolve"] = asyncio.run(run)
    if options.peer:
        figures["openevolve"] = measure_openevolve(options.peer)
    text = json.dumps(figures, indent=2, default=float)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

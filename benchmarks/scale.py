"""How a search scales with evaluators and islands: simulated GPUs, everything around them as in a run.

    python -m benchmarks.scale --evaluators 8 64 512 --islands 8 32 128 --seconds 20

Every GPU is simulated (`benchmarks.simulated`): it takes `--takes` seconds for a candidate and answers from a seeded
table; preparation answers at once. Crew, judge, search, islands with the real structural operators, and archive are
those of a run. What is measured: candidates a second, how long a ready GPU stands until its next candidate comes, how
long an insert takes until it is durable, and for each kind of process its memory and its share of a core.

With `--address` it runs on a Ray cluster: `benchmarks.nodes` makes one on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import Census
from benchmarks.simulated import REPORT, SimulatedEvaluator, SimulatedGpus, Timed, percentile
from db.records import DeviceKind, LatencyKind, PrecisionClass, Run
from evaluators.problems import load_problem
from evolve.budget import Budget
from evolve.cluster import answer, connected
from evolve.config import RunConfig, load_config
from evolve.crew import Crew
from evolve.judging import JudgePool
from evolve.progress import ProgressMeter
from evolve.run import ignore
from evolve.search import Search
from islands.migration import make_topology
from islands.seed import Seed

N_PREPARERS = 4
WARM_S = 5.0


class SimulatedCrew(Crew):
    """The crew of a run, whose GPUs and preparers are simulated by one process."""

    gpus: Any = None
    n_gpus = 1
    takes_s = 0.25

    def _start_evaluators(self) -> list[Any]:
        self.gpus = SimulatedGpus.remote(self.n_gpus, self.takes_s, self._config.rng_seed)  # type: ignore[attr-defined]
        return [SimulatedEvaluator(self.gpus, index) for index in range(self.n_gpus)]

    def _start_preparers(self) -> list[Any]:
        return [SimulatedEvaluator(self.gpus, index) for index in range(N_PREPARERS)]

    async def close(self, timeout_s: float = 0.0) -> None:
        self._evaluators, self._preparers = [], [self.gpus]
        await super().close(timeout_s)


class Load(NamedTuple):
    """What a search is measured under."""

    n_gpus: int
    takes_s: float
    seconds: float


def crew_of(config: RunConfig, load: Load) -> SimulatedCrew:
    problem = load_problem(config.problem)
    crew = SimulatedCrew(config, problem, DeviceKind.CPU, "scale")
    crew.n_gpus, crew.takes_s = load.n_gpus, load.takes_s
    return crew


async def measure(config: RunConfig, load: Load, census: Census) -> dict[str, Any]:
    """One search for so many seconds, after its first programs were judged."""
    problem = load_problem(config.problem)
    began = time.perf_counter()
    async with crew_of(config, load) as crew:
        report = await crew.open()
        await asyncio.gather(*(answer(island.summary.remote()) for island in crew.islands))
        opened_s = time.perf_counter() - began
        archive = Timed(crew.archive)
        await archive.add_problem.remote(problem)
        await archive.add_run.remote(_run(config, problem.problem_id))
        budget = Budget(10**9)
        islands = [Timed(island) for island in crew.islands]
        search = Search(
            islands=islands,
            judge=JudgePool(
                preparers=crew.preparers,
                evaluators=crew.evaluators,
                archive=archive,
                report=report,
                precision=PrecisionClass.REFERENCE,
            ),
            archive=archive,
            budget=budget,
            meter=ProgressMeter(budget),
            topology=make_topology(config.topology),
            rng=random.Random(config.rng_seed),
            on_event=ignore,
            chains_per_island=crew.chains_per_island,
            batch=config.batch,
            stop_when_stagnant=False,
        )
        await search.seed([Seed(source=source, origin=problem.name) for source in problem.seeds])
        seeded_s = time.perf_counter() - began - opened_s
        timed = _Window(archive, islands, census)
        watching = asyncio.create_task(watch(crew.gpus, load, budget))
        await search.run()
        figures = {"chains_per_island": crew.chains_per_island, **timed.close()}
        waits, watched_s = await watching
        rows = (await archive.query.remote(COUNTS)).rows[0]
    return {
        "evaluators": load.n_gpus,
        "islands": config.islands,
        "start_s": opened_s,
        "seed_s": seeded_s,
        "candidates": rows[0],
        "evaluated": len(waits),
        "evaluated_per_s": len(waits) / watched_s,
        "takes_s": load.takes_s,
        "demand_per_s": load.n_gpus / load.takes_s,
        "wait_p50_ms": 1e3 * percentile(waits, 0.5),
        "wait_p99_ms": 1e3 * percentile(waits, 0.99),
        **figures,
    }


async def watch(gpus: Any, load: Load, budget: Budget) -> tuple[list[float], float]:
    """Ends the search in time. The waits of all GPUs once every one of them had a queue, and for how long that was."""
    warm_s = min(WARM_S + 2 * load.takes_s, load.seconds / 2)
    await asyncio.sleep(warm_s)
    await gpus.take_waits.remote()
    begin = time.perf_counter()
    await asyncio.sleep(load.seconds - warm_s)
    waits: list[float] = await gpus.take_waits.remote()
    watched_s = time.perf_counter() - begin
    budget.stop("time")
    return waits, watched_s


COUNTS = "SELECT count(*) FROM evaluations"


class _Window:
    """What is counted between its making and `close`."""

    def __init__(self, archive: Timed, islands: Sequence[Timed], census: Census) -> None:
        self._timed = [archive, *islands]
        for timed in self._timed:
            for seconds in timed.seconds.values():
                seconds.clear()
        self._archive, self._islands, self._census = archive, islands, census
        self._census.begin()
        self._began = time.perf_counter()

    def close(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self._began
        inserts = self._archive.seconds.get("insert", [])
        known = self._archive.seconds.get("known_fingerprint", [])
        calls = {
            method: [s for island in self._islands for s in island.seconds.get(method, [])]
            for method in ("ask", "tell", "emigrate", "immigrate", "summary")
        }
        return {
            "seconds": seconds,
            "inserted_per_s": len(inserts) / seconds,
            "insert_p50_ms": 1e3 * percentile(inserts, 0.5),
            "insert_p99_ms": 1e3 * percentile(inserts, 0.99),
            "known_p99_ms": 1e3 * percentile(known, 0.99),
            "calls": {
                method: {"n": len(s), "p50_ms": 1e3 * percentile(s, 0.5), "p99_ms": 1e3 * percentile(s, 0.99)}
                for method, s in calls.items()
            },
            "processes": self._census.end(),
            "load_average": os.getloadavg()[0],
        }


def _run(config: RunConfig, problem_id: str) -> Run:
    return Run(
        run_id="scale",
        problem_id=problem_id,
        rng_seed=config.rng_seed,
        device=DeviceKind.CPU,
        hardware=REPORT.hardware,
        precision=PrecisionClass.REFERENCE,
        latency_kind=LatencyKind.MODELLED,
        config=config.model_dump(mode="json"),
        versions=REPORT.versions,
    )


@contextmanager
def ray_running(address: str) -> Iterator[Census]:
    """A Ray of our own, or the cluster at an address; and who its processes are."""
    census = Census()
    with connected(address):
        yield census


def show(figures: dict[str, Any]) -> None:
    """The figures as lines for people."""
    for name, value in figures.items():
        if name == "processes":
            for kind, one in value.items():
                mb, pss = one["rss_mb"] / one["n"], one["pss_mb"] / one["n"]
                print(f"  {kind:20}{one['n']:5.0f} x {mb:7.1f} MB ({pss:6.1f} MB) {one['cores']:6.2f} cores")
        elif name == "calls":
            for method, one in value.items():
                print(f"  {method:20}{one['n']:6.0f} calls {one['p50_ms']:8.1f} ms median {one['p99_ms']:8.1f} ms p99")
        else:
            print(f"{name:24}{value:10.2f}" if isinstance(value, float) else f"{name:24}{value:10}")
    print(flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluators", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--islands", type=int, nargs="+", default=[8])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--takes", type=float, default=0.25, help="seconds that a GPU takes for a candidate")
    parser.add_argument("--problem", default="softmax")
    parser.add_argument("--address", default="", help="of a running Ray cluster")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="of the run")
    parser.add_argument("--out", type=Path, help="add the figures to this file, one line of JSON each")
    options = parser.parse_args(arguments)
    for n_islands in options.islands:
        for n_gpus in options.evaluators:
            with tempfile.TemporaryDirectory() as folder, ray_running(options.address) as census:
                given = {"archive": f"{folder}/scale.duckdb", "islands": n_islands, "device": "cpu"}
                config = load_config(options.problem, sets=options.sets, options=given)
                load = Load(n_gpus, options.takes, options.seconds)
                figures = asyncio.run(measure(config, load, census))
            show(figures)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(figures, default=float) + "\n")


if __name__ == "__main__":
    main()

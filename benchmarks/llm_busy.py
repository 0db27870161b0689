"""How busy evaluators are while language models take seconds to answer.

    python -m benchmarks.llm_busy [--answer-s 5] [--evaluators 2] [--judge-s 0.4] [--seconds 60]

The loop of a run with its islands and archive as Ray actors. A local model answers every question after `--answer-s`
with a program that nobody has seen. Evaluators do no work: each takes `--judge-s` for a candidate, as an H200 does, and
answers with the verdict of `benchmarks.throughput`. What counts is what an evaluator sees itself: how much of the time
it had a candidate, from `--warm-s` on, up to the begin of its last one. It is measured as a run is set up by default,
with structural operators beside the model, and with the model alone, which has `--alone` questions at once.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray

from benchmarks.scripted_model import Said, Script, ScriptedModel, Turn
from benchmarks.throughput import no_op_verdict
from db.actor import ArchiveActor
from db.records import Candidate, Problem, Verdict
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem
from evolve.budget import Budget
from evolve.cluster import connected
from evolve.judging import ActorPool
from evolve.progress import ProgressMeter
from evolve.run import ignore
from evolve.search import Search
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.client import LlmClient
from islands.llm.keys import Keys
from islands.llm.models import read_models
from islands.migration import make_topology
from islands.seed import Seed
from islands.settings import IslandSettings

MARK = 0.9
N_ISLANDS = 2


class Load(NamedTuple):
    """What fills the evaluators: structural proposals at a time, and questions at a time, of every island."""

    name: str
    n_chains: int
    n_questions: int


@ray.remote(num_cpus=0)
class PatientEvaluator:
    """Judges one candidate at a time, and remembers when."""

    def __init__(self, judge_s: float) -> None:
        self._judge_s = judge_s
        self._spans: list[tuple[float, float]] = []

    def evaluate(self, candidate: Candidate) -> Verdict:
        begin = time.time()
        time.sleep(self._judge_s)
        verdict = no_op_verdict(candidate)
        self._spans.append((begin, time.time()))
        return verdict

    def spans(self) -> list[tuple[float, float]]:
        """Begin and end of every judgement, in seconds since the epoch."""
        return self._spans


class PatientJudge:
    """The judge of a run, without preparation: candidates go to the evaluator that has least to do."""

    def __init__(self, evaluators: Sequence[Any]) -> None:
        self._pool = ActorPool(evaluators)

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        return list(await asyncio.gather(*(self._pool.call("evaluate", candidate) for candidate in candidates)))

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        return await self.judge(candidates)


def script_of(problem: Problem, answer_s: float) -> Script:
    """Answers every question with a program of its own: a tile that nobody has."""
    numbers = itertools.count(1)

    def script(_: Sequence[Turn]) -> Said:
        source = problem.seeds[0].replace("BLOCK = 1024", f"BLOCK = {1024 + next(numbers)}")
        return Said(f"TECHNIQUE: tile_size\nCHANGE: another tile\nEXPECT: 5%\n\n```python\n{source}\n```\n", answer_s)

    return script


async def measure(
    problem: Problem, load: Load, arguments: argparse.Namespace, model: str, folder: Path
) -> dict[str, Any]:
    """One search of `--seconds` after the warm-up."""
    store = ArchiveActor.remote(str(folder / f"{load.n_chains}.duckdb"))
    await store.open.remote()
    evaluators = [PatientEvaluator.remote(arguments.judge_s) for _ in range(arguments.evaluators)]
    islands = await open_islands(problem, load, model)
    budget = Budget(1_000_000)
    search = Search(
        islands=islands,
        judge=PatientJudge(evaluators),
        archive=store,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=ignore,
        chains_per_island=load.n_chains,
        batch=1,
        stop_when_stagnant=False,
    )
    await search.seed([Seed(source=source, origin=problem.name) for source in problem.seeds])
    client = LlmClient(read_models([model]), Keys({}), run_id="busy")
    await client.prepare()
    search.correspond(client, load.n_questions, _unheard)
    warm_at = time.time() + arguments.warm_s
    asyncio.get_running_loop().call_later(arguments.warm_s + arguments.seconds, budget.stop, "time")
    await search.run()
    shares = [share(await one.spans.remote(), warm_at) for one in evaluators]
    rows = await store.query.remote("SELECT count(*), count(*) FILTER (lineage->>'model' != '') FROM evaluations")
    await store.close.remote()
    return {
        "load": load.name,
        "islands": N_ISLANDS,
        "questions_at_once": N_ISLANDS * load.n_questions,
        "busy": [round(one, 3) for one in shares],
        "judged": int(rows.rows[0][0]),
        "of_the_model": int(rows.rows[0][1]),
    }


async def open_islands(problem: Problem, load: Load, model: str) -> list[Any]:
    """Islands that talk."""
    islands = [
        IslandActor.options(num_cpus=0).remote(
            island_id=index,
            run_id="busy",
            problem_id=problem.problem_id,
            entry_point=problem.entry_point,
            settings=IslandSettings(in_flight=max(1, 2 * load.n_chains)),
        )
        for index in range(N_ISLANDS)
    ]
    brief = Brief(problem=problem, hardware=load_hardware("h200"), models=read_models([model]))
    settings = DialogueSettings(in_flight=load.n_questions, operators=("mutate",), reflect_every=0)
    await asyncio.gather(*(island.talk.remote(brief, settings) for island in islands))
    return islands


async def _unheard(*_: object) -> None:
    """Nobody keeps the calls."""


def share(spans: Sequence[tuple[float, float]], since: float) -> float:
    """How much of the time from `since` to the begin of the last span lies in spans."""
    until = max(begin for begin, _ in spans)
    inside = (min(end, until) - max(begin, since) for begin, end in spans if end > since and begin < until)
    return sum(inside) / (until - since)


def main() -> None:
    arguments = _arguments()
    problem = load_problem("softmax")
    n_alone = -(-arguments.alone // N_ISLANDS)
    chains = -(-3 * arguments.evaluators // N_ISLANDS)
    loads = (
        Load("structural operators and the model", chains, DialogueSettings().in_flight),
        Load("the model alone", 0, n_alone),
    )
    figures: dict[str, Any] = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "answer_s": arguments.answer_s,
        "judge_s": arguments.judge_s,
        "evaluators": arguments.evaluators,
        "mark": MARK,
        "loads": [],
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        connected(),
        ScriptedModel(script_of(problem, arguments.answer_s)) as model,
    ):
        for load in loads:
            figures["loads"].append(asyncio.run(measure(problem, load, arguments, model.name, Path(folder))))
            print(json.dumps(figures["loads"][-1]), flush=True)
    figures["is_met"] = all(one >= MARK for load in figures["loads"] for one in load["busy"])
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer-s", type=float, default=5.0)
    parser.add_argument("--evaluators", type=int, default=2)
    parser.add_argument("--judge-s", type=float, default=0.4, help="150 candidates a minute, as measured on an H200")
    parser.add_argument("--alone", type=int, default=32, help="questions at once where the model is alone")
    parser.add_argument("--warm-s", type=float, default=12.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Islands share processes; a process that is killed in mid-run is replaced, and nothing that was judged is lost."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.parents import kernel_sources
from support.runs import make_problem
from support.workers import MadeUpEvaluator, MadeUpPreparer, make_report, make_verdict

from db.actor import ArchiveActor
from db.errors import ClusterError
from db.records import EntryPoint, Evaluation, PrecisionClass
from db.reflections import Lesson, Reflection
from evolve import archipelago as archipelago_module
from evolve.archipelago import Archipelago
from evolve.budget import Budget
from evolve.cluster import answer
from evolve.events import Event, Judged
from evolve.judging import ActorPool, JudgePool
from evolve.progress import ProgressMeter
from evolve.search import Search
from islands.dialogues import Brief, DialogueSettings
from islands.llm.exchange import Completion
from islands.migration import make_topology
from islands.reflection import Findings, Taught
from islands.seed import Seed
from islands.settings import IslandSettings

SEED = Seed(source=kernel_sources()["row_softmax"])
N_ISLANDS = 3
N_JUDGED = 40


@pytest.fixture
def archive(ray_session: None, tmp_path: Path) -> Iterator[Any]:
    actor = ArchiveActor.remote(str(tmp_path / "archive.duckdb"))  # type: ignore[attr-defined]
    yield actor
    ray.get(actor.close.remote(), timeout=60)
    ray.kill(actor)


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def islands(archive: Any, changes: list[str]) -> Iterator[Archipelago]:
    made_of = [
        {
            "island_id": index,
            "run_id": "run",
            "problem_id": "problem",
            "entry_point": EntryPoint.FUNCTION,
            "settings": IslandSettings(migration_interval=4),
        }
        for index in range(N_ISLANDS)
    ]
    several = Archipelago(made_of, 2, archive, changes.append)
    yield several
    several.kill()


def said(text: str) -> Completion:
    return Completion(text=text, model="m", finish_reason="stop", n_tokens_in=1, n_tokens_out=1, cost_usd=0, seconds=1)


def kill_process(islands: Archipelago, number: int) -> None:
    ray.kill(islands._processes[number].actor)


def search_of(islands: Archipelago, archive: Any, on_event: Any, judges: list[Any]) -> Search:
    budget = Budget(N_JUDGED)
    return Search(
        islands=islands.islands,
        judge=JudgePool(
            preparers=ActorPool(judges[:1]),
            evaluators=ActorPool(judges[1:]),
            archive=archive,
            report=make_report(),
            precision=PrecisionClass.REFERENCE,
        ),
        archive=archive,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=on_event,
        chains_per_island=2,
        batch=1,
        stop_when_stagnant=False,
    )


def test_a_run_goes_on_when_the_processes_of_its_islands_are_killed(
    islands: Archipelago, archive: Any, changes: list[str]
) -> None:
    judged: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, Judged):
            judged.append(event.evaluation.candidate.candidate_id)
            if len(judged) in (10, 25):
                kill_process(islands, len(judged) % 2)

    async def play() -> list[Any]:
        judges = [MadeUpPreparer.remote(), MadeUpEvaluator.remote()]
        search = search_of(islands, archive, watch, judges)
        await search.seed([SEED])
        await search.run()
        for actor in judges:
            ray.kill(actor)
        return list(await search.summaries())

    summaries = asyncio.run(asyncio.wait_for(play(), 120))
    kept: list[Evaluation] = ray.get(archive.evaluations.remote("run"), timeout=60)
    assert Counter(e.candidate.candidate_id for e in kept) == Counter(judged)
    assert len(judged) == N_JUDGED
    by_island = Counter(e.candidate.island for e in kept)
    assert {s.island: s.n_told for s in summaries} == by_island and not any(s.n_in_flight for s in summaries)
    assert [line.split(" died")[0] for line in changes] == ["the process of islands 0, 2", "the process of island 1"]


def test_what_was_on_its_way_is_told_to_the_new_process(islands: Archipelago, archive: Any) -> None:
    island = islands.islands[1]

    async def play() -> tuple[Any, Any, Any]:
        (seed,) = await answer(island.seed.remote([SEED]))
        await archive.insert.remote([Evaluation(candidate=seed, verdict=make_verdict(seed))])
        await answer(island.tell.remote([make_verdict(seed)]))
        asked = await answer(island.ask.remote(3))
        kill_process(islands, 1)
        more = await answer(island.ask.remote(3))
        await answer(island.tell.remote([make_verdict(candidate) for candidate in [*asked, *more]]))
        return asked, more, await answer(island.summary.remote())

    asked, more, summary = asyncio.run(asyncio.wait_for(play(), 60))
    assert len({c.candidate_id for c in [*asked, *more]}) == 6 == len({c.program_id for c in [*asked, *more]})
    assert (summary.n_told, summary.n_in_flight) == (7, 0)


def test_what_models_taught_is_told_to_the_new_process(islands: Archipelago) -> None:
    first, second = islands.islands[0], islands.islands[1]
    brief = Brief(run_id="run", problem=make_problem(), hardware=make_report().hardware)
    faked = {"concerns": [{"kind": "faked", "line": 1, "what": "zeros"}], "advice": ""}

    async def teach() -> list[Taught]:
        for island in (first, second):
            await island.talk.remote(brief, DialogueSettings(reflect_every=1), Taught(lessons=("before",)))
        (candidate,) = await first.seed.remote([SEED])
        verdict = make_verdict(candidate)
        await first.tell.remote([verdict])
        await first.consider.remote(Evaluation(candidate=candidate, verdict=verdict))
        (question,) = await first.questions.remote(1)
        await first.answered.remote(question.dialogue_id, said(json.dumps(faked)))
        found = await first.findings.remote()
        await second.hear.remote(found)
        reflection = Reflection(run_id="run", island=1, lessons=(Lesson(run_id="run", island=1, position=0, text="x"),))
        await second.hear.remote(Findings(reflections=(reflection,)))  # whose memory is its own
        for number in (0, 1):
            kill_process(islands, number)
        states = [await island.dump_dialogues.remote() for island in (first, second)]
        return [state.notebook.reflections.taught for state in states]

    for taught in asyncio.run(teach()):
        assert taught.lessons == ("before",)
        (opinion,) = taught.opinions
        assert opinion.concerns[0].what == "zeros" and opinion.run_id == "run"


def test_a_process_that_dies_whenever_it_is_called_ends_the_run(
    islands: Archipelago, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archipelago_module, "MAX_DEATHS", 1)

    async def play() -> None:
        for _ in range(20):  # a call may be answered before the process is gone
            kill_process(islands, 0)
            await islands.islands[0].summary.remote()

    with pytest.raises(ClusterError, match="keep dying"):
        asyncio.run(asyncio.wait_for(play(), 60))

"""Models that look back during a search: real islands, a real archive, real HTTP, and made-up judges of candidates."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from support.llm_clients import client_of, spec
from support.llm_server import Asked, LlmServer, Reply, answer, hanging
from support.runs import make_problem
from support.workers import MadeUpEvaluator, MadeUpPreparer, make_report

from db.actor import ArchiveActor
from db.opinions import ProgramOpinion
from db.records import EntryPoint, Evaluation, PrecisionClass
from db.reflections import Explanation, LearntTechnique, Lesson
from evolve import advice as advice_module
from evolve.advice import Advice
from evolve.budget import Budget
from evolve.judging import ActorPool, JudgePool
from evolve.progress import ProgressMeter
from evolve.search import Search
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.client import LlmSettings
from islands.migration import make_topology
from islands.reflection import Taught
from islands.seed import Seed

RUN_ID = "run"
LIMIT_S = 120.0
PATIENT = LlmSettings(n_tries=3, call_limit_s=60.0, backoff_s=0.01)
FAKED = answer(json.dumps({"concerns": [{"kind": "faked", "line": 2, "what": "no work at all"}], "advice": "work"}))
REFLECTED = answer(
    json.dumps(
        {
            "memory": [{"action": "append", "text": "Smaller numbers are faster."}],
            "explanations": [{"attempt": 1, "cause": "fewer us", "avoid": "large us", "try_next": "us = 1"}],
            "techniques": [
                {"name": "count_down", "changes": "c", "instruction": "Count.", "addresses": ["memory_latency"]}
            ],
        }
    )
)


def kind_of(asked: Asked) -> str:
    text = asked.body["messages"][1]["content"]
    return "judge" if "# The candidate" in text else "reflect" if "# Attempts" in text else "mutate"


def scripted(judged: Reply = FAKED) -> Callable[[Asked], Reply]:
    """Programs, the third of which is the fastest, and what is answered to those who look back."""
    numbers = itertools.chain((90, 70, 50), itertools.count(91))

    def reply(asked: Asked) -> Reply:
        match kind_of(asked):
            case "judge":
                return judged
            case "reflect":
                return REFLECTED
        n = next(numbers)
        return answer(f"```python\n# us = {n}\nus = {n}\n\n\nclass ModelNew:\n    pass\n```\n")

    return reply


class Played(NamedTuple):
    """How a search ended."""

    best: Evaluation
    kept: list[Evaluation]
    asked: dict[str, list[str]]  # prompts by kind
    lessons: list[Lesson]
    explanations: list[Explanation]
    techniques: list[LearntTechnique]
    opinions: list[ProgramOpinion]
    known: list[Taught]  # what the islands know at its end
    taught: list[Taught]  # what those of a later sitting start from


@pytest.fixture(scope="module")
def judges(ray_session: None) -> Iterator[tuple[ActorPool, ActorPool]]:
    actors = [MadeUpPreparer.remote(), MadeUpEvaluator.remote()]
    yield ActorPool(actors[:1]), ActorPool(actors[1:])
    for actor in actors:
        ray.kill(actor)


Play = Callable[..., Played]


@pytest.fixture
def play(judges: tuple[ActorPool, ActorPool], tmp_path: Path) -> Iterator[Play]:
    """Plays a search of eight verdicts, in which only models propose."""
    started: list[Any] = []

    def run(script: Callable[[Asked], Reply], *, n_islands: int = 1, is_searching: bool = True, **how: Any) -> Played:
        islands = [
            IslandActor.options(num_cpus=0).remote(  # type: ignore[attr-defined]
                island_id=index, run_id=RUN_ID, problem_id="problem", entry_point=EntryPoint.MODEL
            )
            for index in range(n_islands)
        ]
        archive = ArchiveActor.remote(str(tmp_path / f"{len(started)}.duckdb"))  # type: ignore[attr-defined]
        started.extend([*islands, archive])
        return asyncio.run(asyncio.wait_for(_played(judges, islands, archive, script, is_searching, **how), LIMIT_S))

    yield run
    for actor in started:
        ray.kill(actor)


async def _played(
    judges: tuple[ActorPool, ActorPool],
    islands: list[Any],
    archive: Any,
    script: Callable[[Asked], Reply],
    is_searching: bool,
    is_judging: bool = False,
    reflect_every: int = 0,
    reflect_s: float | None = None,
) -> Played:
    settings = DialogueSettings(in_flight=1, operators=("mutate",), reflect_every=reflect_every)
    budget = Budget(8)
    meter = ProgressMeter(budget)
    judge = JudgePool(
        preparers=judges[0],
        evaluators=judges[1],
        archive=archive,
        report=make_report(),
        precision=PrecisionClass.REFERENCE,
    )
    search = Search(
        islands=islands,
        judge=judge,
        archive=archive,
        budget=budget,
        meter=meter,
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=lambda event: None,
        chains_per_island=1,
        batch=1,
        stop_when_stagnant=False,
    )
    advice = Advice(RUN_ID, archive, islands, lambda: meter.best, is_judging=is_judging)
    brief = Brief(run_id=RUN_ID, problem=make_problem(), hardware=make_report().hardware, triton_version="3.6.0")
    for island, taught in zip(islands, await advice.taught(Taught()), strict=True):
        await island.talk.remote(brief, settings, taught)
    with LlmServer(script) as server:
        client = client_of(spec(server.api_base), settings=PATIENT)
        await client.prepare()
        search.correspond(client, settings.in_flight, lambda question, *_: advice.hear(question))
        await search.seed([Seed(source="us = 100", origin="file")])  # which no technique applies to
        if is_searching:
            await search.run()
        await advice.ask_last(client, lambda: False, reflect_s=reflect_s)
        asked: dict[str, list[str]] = {}
        for one in server.asked:
            asked.setdefault(kind_of(one), []).append(one.body["messages"][1]["content"])
    assert meter.best is not None
    return Played(
        meter.best,
        await archive.evaluations.remote(RUN_ID),
        asked,
        await archive.lessons.remote(),
        await archive.explanations.remote(),
        await archive.learnt_techniques.remote(),
        await archive.opinions.remote(),
        [(await island.dump_dialogues.remote()).notebook.reflections.taught for island in islands],
        await advice.taught(Taught()),
    )


def test_a_judge_that_holds_everything_for_faked_decides_nothing(play: Play) -> None:
    plain, judged = play(scripted(), n_islands=2), play(scripted(), n_islands=2, is_judging=True)
    assert "us = 50" in judged.best.candidate.source and judged.best.candidate.source == plain.best.candidate.source
    assert len(judged.kept) == len(plain.kept) == 8 and all(e.verdict.is_correct for e in judged.kept)
    assert judged.best.verdict.model_copy(update={"candidate_id": ""}) == plain.best.verdict.model_copy(
        update={"candidate_id": ""}
    )
    assert plain.opinions == [] and "judge" not in plain.asked
    assert {concern.kind for opinion in judged.opinions for concern in opinion.concerns} == {"faked"}
    of_best = [one for one in judged.opinions if one.program_id == judged.best.verdict.program_id]
    assert len(of_best) == 1 and of_best[0].advice == "work" and of_best[0].model == "openai/scripted"
    for island in (*judged.known, *judged.taught):
        assert island.opinion_on(judged.best.verdict.program_id) == of_best[0]


def test_reflections_reach_the_archive_and_later_prompts(play: Play) -> None:
    played = play(scripted(), reflect_every=2)
    assert {lesson.text for lesson in played.lessons} == {"Smaller numbers are faster."}
    assert {lesson.run_id for lesson in played.lessons} == {RUN_ID}
    written = {e.candidate.candidate_id for e in played.kept if e.candidate.lineage.model}
    assert {one.candidate_id for one in played.explanations} <= written and played.explanations
    assert [one.name for one in played.techniques] == ["count_down"]
    told = [prompt for prompt in played.asked["mutate"] if "- Smaller numbers are faster." in prompt]
    assert told and all("- large us" in prompt and "- us = 1" in prompt for prompt in told)
    assert len(played.asked["reflect"]) <= len(written) // 2 + 1
    (known,), (later,) = played.known, played.taught
    assert later == known.model_copy(update={"seen": later.seen}) and known.seen >= later.seen > ""
    assert later.advice == ("us = 1",) and [one.name for one in later.techniques] == ["count_down"]


def test_a_short_run_looks_back_once_at_its_end(play: Play) -> None:
    played, hurried = play(scripted(), reflect_every=100), play(scripted(), reflect_every=100, reflect_s=0.0)
    (prompt,) = played.asked["reflect"]
    written = [e for e in played.kept if e.candidate.lineage.model]
    assert f"{len(written)}. " in prompt
    assert [lesson.text for lesson in played.lessons] == ["Smaller numbers are faster."]
    assert "reflect" not in hurried.asked and hurried.lessons == []
    assert "reflect" not in play(scripted(), is_searching=False, reflect_every=1).asked, "nothing was attempted"


def test_an_opinion_that_does_not_come_does_not_hold_a_run_up(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice_module, "LAST_ADVICE_S", 0.5)
    held_up = play(scripted(hanging()), is_searching=False, is_judging=True)
    assert held_up.opinions == [] and list(held_up.asked) == ["judge"]

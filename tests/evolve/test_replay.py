"""A recorded run, replayed without a network: the same questions, the same answers, the same programs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.here import here
from support.llm_server import LlmServer, Reply, answer, failing
from support.runs import make_problem
from support.workers import MadeUpEvaluator, MadeUpPreparer, make_report

from db.actor import ArchiveActor
from db.records import EntryPoint, Evaluation, PrecisionClass
from evolve import correspondence
from evolve.budget import Budget
from evolve.config import RunConfig, load_config
from evolve.events import Event, ModelsSilent
from evolve.judging import ActorPool, JudgePool
from evolve.language import open_client
from evolve.progress import ProgressMeter
from evolve.search import Search
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.keys import Keys
from islands.llm.models import read_models
from islands.migration import make_topology
from islands.seed import Seed

FIRST = "us = 90\n\n\nclass ModelNew:\n    pass"  # no technique applies to it: models alone propose


def play(config: RunConfig, archive: Path) -> tuple[list[Evaluation], list[Event]]:
    """A search with what the configuration says of models, on one island; what was judged, in order."""
    return asyncio.run(asyncio.wait_for(_play(config, archive), 60.0))


async def _play(config: RunConfig, archive: Path) -> tuple[list[Evaluation], list[Event]]:
    owner, problem = here(ArchiveActor, str(archive)), make_problem()
    island = here(IslandActor, island_id=0, run_id="run", problem_id=problem.problem_id, entry_point=EntryPoint.MODEL)
    brief = Brief(problem=problem, hardware=make_report().hardware, models=read_models(config.models))
    settings = DialogueSettings(in_flight=1, operators=("mutate",))
    await island.talk.remote(brief, settings)
    budget, events = Budget(config.evaluations), list[Event]()
    judge = JudgePool(
        preparers=ActorPool([here(MadeUpPreparer)]),
        evaluators=ActorPool([here(MadeUpEvaluator)]),
        archive=owner,
        report=make_report(),
        precision=PrecisionClass.REFERENCE,
    )
    search = Search(
        islands=[island],
        judge=judge,
        archive=owner,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=events.append,
        chains_per_island=1,
        batch=1,
        stop_when_stagnant=False,
    )
    client = open_client(config, Keys({}), "run", lambda call: None)
    await client.prepare()
    search.correspond(client, 1, _nothing)
    await search.seed([Seed(source=FIRST, origin="file")])
    await search.run()
    judged: list[Evaluation] = await owner.evaluations.remote("run")
    await owner.close.remote()
    return judged, events


async def _nothing(*_: Any) -> None: ...


def program(**says: object) -> Reply:
    lines = "\n".join(f"{name} = {value}" for name, value in says.items())
    return answer(f"```python\n{lines}\n\n\nclass ModelNew:\n    pass\n```\n")


REPLIES = [
    answer("I would rather not."),
    program(us=50),
    program(us=40, wrong=1),
    program(us=30),
    failing(400, "too long", code="context_length_exceeded"),
    program(us=20),
    program(us=10),
    program(us=5),
]


@pytest.fixture(autouse=True, scope="module")
def no_pause() -> Iterator[None]:
    """After a question that nobody answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correspondence, "PAUSE_S", 0.0)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Evaluation]]:
    folder = tmp_path_factory.mktemp("recorded")
    with LlmServer(REPLIES) as server:
        models = [f"openai/scripted,api_base={server.api_base},unpriced"]
        options = {"models": models, "evaluations": 6}
        sets = [f"llm.record={folder / 'answers.jsonl'}", "llm.n_tries=1"]
        judged, _ = play(load_config("softmax", sets=sets, options=options), folder / "a.duckdb")
    return folder, judged


def told(judged: list[Evaluation]) -> list[tuple[Any, ...]]:
    """Everything of an evaluation but when it was made."""
    return [(e.candidate, e.verdict.outcome, e.verdict.latency, e.verdict.reason) for e in judged]


def test_a_replayed_run_gives_the_same_programs(recorded: tuple[Path, list[Evaluation]], tmp_path: Path) -> None:
    folder, judged = recorded
    assert len({e.candidate.program_id for e in judged if e.candidate.lineage.model}) >= 3
    sets = [f"llm.replay={folder / 'answers.jsonl'}"]
    again, _ = play(load_config("softmax", sets=sets, options={"evaluations": 6}), tmp_path / "a.duckdb")
    assert told(again) == told(judged)


def test_a_replay_of_half_a_recording_ends_in_silence(recorded: tuple[Path, list[Evaluation]], tmp_path: Path) -> None:
    folder, judged = recorded
    lines = (folder / "answers.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "half.jsonl").write_text("".join(lines[: len(lines) // 2]))
    sets = [f"llm.replay={tmp_path / 'half.jsonl'}"]
    again, events = play(load_config("softmax", sets=sets, options={"evaluations": 6}), tmp_path / "a.duckdb")
    assert told(again) == told(judged)[: len(again)] and 1 < len(again) < len(judged)
    assert any(isinstance(event, ModelsSilent) for event in events)

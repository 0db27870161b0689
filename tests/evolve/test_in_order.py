"""A search that goes in order gives the same programs, however long judging takes and whenever models answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.here import here
from support.llm_server import Asked, LlmServer, Reply, answer
from support.runs import make_problem
from support.workers import make_report, make_verdict

from db.actor import ArchiveActor
from db.records import Candidate, EntryPoint, Evaluation, Lineage, Verdict
from evaluators.problems import load_problem
from evolve import ordered
from evolve.budget import Budget
from evolve.config import RunConfig, load_config
from evolve.language import open_client
from evolve.ordered import FirstTold, digest_of
from evolve.progress import ProgressMeter
from evolve.search import Search
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.keys import Keys
from islands.llm.models import read_models
from islands.migration import make_topology
from islands.seed import Seed
from islands.settings import IslandSettings

FIRST = load_problem("softmax", sizes={}).seeds[0]
N_ISLANDS = 2


class UnevenJudge:
    """What a program comes to follows from its source, how long that takes does not."""

    def __init__(self, delays: random.Random) -> None:
        self._delays = delays

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        await asyncio.sleep(self._delays.random() * 0.02)
        return [make_verdict(candidate) for candidate in candidates]

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        return await self.judge(candidates)


def play(config: RunConfig, archive: Path, delays: int) -> list[Evaluation]:
    """A search of real islands with real operators; what was judged, as the archive has it."""
    return asyncio.run(asyncio.wait_for(_play(config, archive, random.Random(delays)), 60.0))


async def _play(config: RunConfig, archive: Path, delays: random.Random) -> list[Evaluation]:
    owner, problem = here(ArchiveActor, str(archive)), make_problem()
    made_of = {"run_id": "run", "problem_id": problem.problem_id, "entry_point": EntryPoint.MODEL}
    settings = IslandSettings(migration_interval=4)
    islands = [here(IslandActor, island_id=n, settings=settings, **made_of) for n in range(N_ISLANDS)]
    budget = Budget(config.evaluations)
    search = Search(
        islands=islands,
        judge=UnevenJudge(delays),
        archive=owner,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=lambda event: None,
        chains_per_island=1,
        batch=1,
        stop_when_stagnant=True,
        window=config.window,
    )
    if config.models:
        brief = Brief(problem=problem, hardware=make_report().hardware, models=read_models(config.models))
        for island in islands:
            await island.talk.remote(brief, DialogueSettings(in_flight=2, operators=("mutate", "crossover")))
        client = open_client(config, Keys({}), "run", lambda call: None)
        await client.prepare()
        search.correspond(client, 2, _nothing)
    await search.seed([Seed(source=FIRST, origin="file")])
    await search.run()
    judged: list[Evaluation] = await owner.evaluations.remote("run")
    await owner.close.remote()
    return judged


async def _nothing(*_: Any) -> None: ...


@pytest.fixture(autouse=True, scope="module")
def no_pause() -> Iterator[None]:
    """After a question that nobody answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "PAUSE_S", 0.0)
        yield


def test_the_pace_of_the_judge_does_not_matter(tmp_path: Path) -> None:
    config = load_config("softmax", options={"evaluations": 40, "in_order": 6, "islands": N_ISLANDS})
    runs = [play(config, tmp_path / f"{n}.duckdb", n) for n in range(3)]
    assert len(runs[0]) == 40 and len({digest_of(run) for run in runs}) == 1
    assert {e.candidate.island for e in runs[0]} == set(range(N_ISLANDS))


def test_another_window_is_another_run(tmp_path: Path) -> None:
    config = load_config("softmax", options={"evaluations": 12, "in_order": 6, "islands": N_ISLANDS})
    wider = load_config("softmax", options={"evaluations": 12, "in_order": 7, "islands": N_ISLANDS})
    assert digest_of(play(config, tmp_path / "a.duckdb", 0)) != digest_of(play(wider, tmp_path / "b.duckdb", 0))


class Author:
    """Writes a program of its own for every prompt, some of them late, and some answers that are none."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, asked: Asked) -> Reply:
        self.n += 1
        if self.n % 4 == 0:
            return answer("I would rather not.", delay_s=0.05)
        text = FIRST.replace("num_warps=4", f"num_warps={2 ** (self.n % 5)}") + f"\n\nMADE = {self.n}\n"
        return answer(f"```python\n{text}\n```\n", delay_s=0.1 * (self.n % 3))


def test_a_replay_takes_answers_in_when_the_recorded_run_did(tmp_path: Path) -> None:
    recording = tmp_path / "answers.jsonl"
    with LlmServer(Author()) as server:
        options = {
            "models": [f"openai/scripted,api_base={server.api_base},unpriced"],
            "evaluations": 40,
            "islands": N_ISLANDS,
        }
        recorded = play(load_config("softmax", sets=[f"llm.record={recording}"], options=options), tmp_path / "a", 1)
    replayed = play(load_config("softmax", sets=[f"llm.replay={recording}"], options=options), tmp_path / "b", 2)
    by_models = [e for e in recorded if e.candidate.lineage.model]
    assert len(by_models) >= 3 and len(by_models) < len(recorded) - N_ISLANDS
    assert digest_of(replayed) == digest_of(recorded)


def test_the_first_that_is_told_is_the_original() -> None:
    first, second, foreign = (
        Candidate(
            candidate_id=f"run-0-{n:06d}",
            run_id="run",
            problem_id="problem",
            island=0,
            source=f"VALUE = {n}\nwork = A",
            entry_point=EntryPoint.MODEL,
            lineage=Lineage(operator="retune"),
        )
        for n in range(3)
    )
    order = FirstTold()
    order.asked([first, second])
    judged_late = make_verdict(first).model_copy(update={"duplicate_of": second.program_id})
    assert order.named(judged_late).duplicate_of == ""
    assert order.named(make_verdict(second)).duplicate_of == first.program_id
    of_another_run = make_verdict(foreign).model_copy(update={"duplicate_of": "a program of another run"})
    assert order.named(of_another_run) == of_another_run

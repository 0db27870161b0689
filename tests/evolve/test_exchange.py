"""A run whose questions somebody carries: written down, answered in files, heard once, asked on while money lasts."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.here import here
from support.llm_server import answer
from support.runs import make_problem, make_run
from support.workers import MadeUpEvaluator, MadeUpPreparer, make_report

from db.actor import ArchiveActor
from db.errors import ConfigError, NotFoundError
from db.live import open_for_reading
from db.llm_questions import LlmQuestion, QuestionStatus
from db.records import EntryPoint, Evaluation, PrecisionClass, RunStatus
from evolve.budget import Budget
from evolve.config import load_config
from evolve.exchange import Exchange, offers_of
from evolve.judging import ActorPool, JudgePool
from evolve.llm import pending_prompts, take_answers
from evolve.progress import ProgressMeter
from evolve.run import resume_search, run_search
from evolve.search import Search
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.budget import Limits, LlmBudget, Spend
from islands.migration import make_topology
from islands.seed import Seed
from islands.settings import IslandSettings

RUN_ID = "r1a2b3c4"
BATCH_USD = 1000 * 1.25e-6 + 100 * 5e-6  # what litellm's table says of gpt-4o in batches
CONFIG = load_config("softmax", sets=["llm.mode=exchange"], options={"models": ["openai/gpt-4o"]})


def line(custom_id: str, text: str = "", usage: tuple[int, int] = (1000, 100), **response: Any) -> str:
    said = {"status_code": 200, "body": json.loads(answer(text, usage=usage).body), **response}
    return json.dumps({"id": "b", "custom_id": custom_id, "response": said, "error": None})


def program(**says: object) -> str:
    """An answer with a program that judges do what it says to."""
    lines = "\n".join(f"{name} = {value}" for name, value in says.items())
    return f"```python\n{lines}\n\n\nclass ModelNew:\n    pass\n```\n"


def waiting(archive: Path) -> list[LlmQuestion]:
    return of_status(QuestionStatus.WAITING, archive)


def of_status(status: QuestionStatus, archive: Path) -> list[LlmQuestion]:
    with open_for_reading(archive) as reader:
        return [one for one in reader.llm_questions(RUN_ID) if one.status is status]


@dataclass
class Sittings:
    """Sittings of one run over one archive file, as `evolve run` and `evolve llm import` hold them; judges made up."""

    archive: Path
    limits: Limits = field(default_factory=Limits)
    n_per_island: int | None = 3

    def hold(self, *lines: str, spent_usd: float = 0.0, **hearing: Any) -> int:
        """One sitting; how many questions wait at its end. With lines, these answers are taken in before."""
        if lines:
            file = self.archive.with_suffix(".jsonl")
            file.write_text("\n".join(lines))
            take_answers(self.archive, file)
        return asyncio.run(asyncio.wait_for(self._hold(spent_usd, hearing), 120.0))

    async def _hold(self, spent_usd: float, hearing: dict[str, Any]) -> int:
        problem, report = make_problem(), make_report()
        owner = here(ArchiveActor, str(self.archive))
        await owner.add_problem.remote(problem)
        await owner.add_run.remote(make_run(problem))
        island = here(
            IslandActor,
            island_id=0,
            run_id=RUN_ID,
            problem_id=problem.problem_id,
            entry_point=EntryPoint.MODEL,
            settings=IslandSettings(),
        )
        brief = Brief(problem=problem, hardware=report.hardware, triton_version="3.7.1")
        await island.talk.remote(brief, DialogueSettings(in_flight=3, operators=("mutate",)))
        budget = LlmBudget(self.limits)
        budget.resume(Spend(usd=spent_usd), 0.0)
        exchange = Exchange(RUN_ID, offers_of(CONFIG), budget, archive=owner, islands=[island])
        await exchange.take_up()
        search = _search(owner, island)
        judged: list[Evaluation] = await owner.evaluations.remote(RUN_ID)
        await search.restore(judged, elapsed_s=0.0)
        await search.seed([Seed(source="us = 90\n\n\nclass ModelNew:\n    pass", origin="file")])
        await exchange.hear(search.settle, **{"n_at_once": 2, "is_over": lambda: False, **hearing})
        n_waiting = await exchange.write_down(self.n_per_island)
        await owner.close.remote()
        return n_waiting

    def made(self) -> list[tuple[str, bool]]:
        """What models wrote: operator, and whether it was correct."""
        with open_for_reading(self.archive) as reader:
            evaluations = reader.evaluations(RUN_ID)
        by_models = [e for e in evaluations if e.candidate.lineage.model == "openai/gpt-4o"]
        return sorted((e.candidate.lineage.operator, e.verdict.is_correct) for e in by_models)


def _search(owner: Any, island: Any) -> Search:
    budget = Budget(1)
    judge = JudgePool(
        preparers=ActorPool([here(MadeUpPreparer)]),
        evaluators=ActorPool([here(MadeUpEvaluator)]),
        archive=owner,
        report=make_report(),
        precision=PrecisionClass.REFERENCE,
    )
    return Search(
        islands=[island],
        judge=judge,
        archive=owner,
        budget=budget,
        meter=ProgressMeter(budget),
        topology=make_topology("ring"),
        rng=random.Random(0),
        on_event=lambda event: None,
        chains_per_island=1,
        batch=1,
        stop_when_stagnant=True,
    )


@pytest.fixture
def sittings(tmp_path: Path) -> Sittings:
    return Sittings(tmp_path / "a.duckdb")


def test_answers_are_judged_and_what_is_refused_is_asked_again(sittings: Sittings) -> None:
    assert sittings.hold() == 3
    good, wrong, rubbish = waiting(sittings.archive)
    assert good.model == "openai/gpt-4o" and good.spec["max_output_tokens"] == 16384
    lines = [line(rubbish.question_id, "I cannot help."), line(wrong.question_id, program(us=5, wrong=1))]
    assert sittings.hold(*lines, line(good.question_id, program(us=10))) == 3
    assert sittings.made() == [("mutate", False), ("mutate", True)]
    own = {one.dialogue_id: one for one in waiting(sittings.archive)}
    repaired, refused = own.pop(wrong.dialogue_id), own.pop(rubbish.dialogue_id)
    assert repaired.operator == "repair" and "differs from the reference" in repaired.request["messages"][-1]["content"]
    assert "could not be used" in refused.request["messages"][-1]["content"]
    (new,) = own.values()
    assert good.dialogue_id != new.dialogue_id and "us = 10" in new.request["messages"][-1]["content"]
    sittings.hold(line(repaired.question_id, program(us=8)))
    assert sittings.made() == [("mutate", False), ("mutate", True), ("repair", True)]


def test_a_question_without_an_answer_waits_on_under_its_id(sittings: Sittings) -> None:
    sittings.hold()
    good, missing, failed = waiting(sittings.archive)
    assert sittings.hold(line(failed.question_id, status_code=429), line(good.question_id, program(us=10))) == 3
    kept = [one for one in waiting(sittings.archive) if one in (good, missing, failed)]
    assert kept == [missing, failed]
    sittings.hold(line(missing.question_id, program(us=9)))
    assert sittings.made() == [("mutate", True)] * 2


def test_an_answer_is_taken_and_paid_for_once(sittings: Sittings) -> None:
    sittings.hold()
    good, *_ = waiting(sittings.archive)
    answers = [line(good.question_id, program(us=10)), "no json"]
    file = sittings.archive.with_suffix(".jsonl")
    file.write_text("\n".join(answers))
    assert take_answers(sittings.archive, file) == (RUN_ID, 1, 2, ((2, "no JSON"),))
    assert take_answers(sittings.archive, file).n_answered == 0, "it was cut off before anybody heard it"
    sittings.hold()
    with pytest.raises(ConfigError, match="answers none of the 3 questions") as raised:
        take_answers(sittings.archive, file)
    assert "taken in before" in raised.value.hint
    assert sittings.made() == [("mutate", True)]
    with open_for_reading(sittings.archive) as reader:
        assert [call.cost_usd for call in reader.llm_calls()] == [pytest.approx(BATCH_USD)]


def test_whoever_interrupts_loses_no_answer(sittings: Sittings) -> None:
    sittings.hold()
    good, _, rubbish = waiting(sittings.archive)
    sittings.n_per_island = None
    interrupted = iter([False, True, True, True])
    lines = [line(good.question_id, program(us=10)), line(rubbish.question_id, "no")]
    assert sittings.hold(*lines, n_at_once=1, is_over=lambda: next(interrupted)) == 1
    assert sittings.made() == [("mutate", True)]
    assert [one.question_id for one in of_status(QuestionStatus.ANSWERED, sittings.archive)] == [rubbish.question_id]
    sittings.n_per_island = 3
    assert sittings.hold() == 3, "the refused answer was heard now"
    assert any(one.dialogue_id == rubbish.dialogue_id for one in waiting(sittings.archive))


def test_no_more_is_asked_than_is_paid_for(sittings: Sittings) -> None:
    """An answer of at most 16,384 tokens costs up to eight cents, its prompt one or two."""
    sittings.limits = Limits(usd=0.2)
    assert sittings.hold() == 2
    (first, second) = waiting(sittings.archive)
    assert sittings.hold(line(first.question_id, program(us=10)), spent_usd=0.05) == 1
    assert waiting(sittings.archive) == [second]
    sittings.n_per_island = 0  # the best program is at the roof
    assert sittings.hold() == 0 and waiting(sittings.archive) == []


def test_only_what_waits_is_exported(sittings: Sittings) -> None:
    sittings.hold()
    with open_for_reading(sittings.archive) as reader:
        prompts = pending_prompts(reader)
        assert prompts.run_id == RUN_ID and prompts.n_questions == {"openai/gpt-4o": 3}
        bodies = [json.loads(text)["body"] for text in prompts.text().split("\n") if text]
        assert len(bodies) == 3 and {body["model"] for body in bodies} == {"gpt-4o"}
        assert pending_prompts(reader, RUN_ID, model="openai/gpt-4o") == prompts
        with pytest.raises(NotFoundError, match="nothing waits for ollama/x") as raised:
            pending_prompts(reader, model="ollama/x")
    assert "openai/gpt-4o" in raised.value.hint


def test_an_exchange_that_cannot_be_is_told_before_it_starts() -> None:
    for sets, models in ((["llm.record=x"], ["openai/gpt-4o"]), ([], []), ([], ["openai/nobody-knows"])):
        with pytest.raises(ConfigError) as raised:
            offers_of(load_config("softmax", sets=["llm.mode=exchange", *sets], options={"models": models}))
        assert raised.value.hint


DOUBLE = """
import torch
import triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=at < n)


def kernel_function(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


@pytest.mark.slow
def test_a_run_waits_and_goes_on_from_its_answers(ray_session: None, tmp_path: Path) -> None:
    file, archive = tmp_path / "double.py", tmp_path / "a.duckdb"
    file.write_text(f"{DOUBLE}\n\ndef get_inputs():\n    return [torch.randn(64, 1024)]\n")
    options = {"archive": str(archive), "out": str(tmp_path / "out"), "device": "cpu", "islands": 1, "evaluations": 2}
    sets = ["llm.mode=exchange", "stop_at_roofline=1"]
    result = run_search(load_config(str(file), sets=sets, options={**options, "models": ["openai/gpt-4o"]}))
    assert (result.run.status, result.run.stop_reason) == (RunStatus.WAITING, "waiting for answers")
    assert result.n_waiting == 2 and result.progress.n_judged == 2
    with open_for_reading(archive) as reader:
        (first, _) = [one.custom_id for one in pending_prompts(reader).pending]
    (tmp_path / "x.jsonl").write_text(line(first, f"```python\n{DOUBLE.replace('1024', '512')}\n```"))
    take_answers(archive, tmp_path / "x.jsonl")
    result = resume_search(str(archive), result.run.run_id, n_more=1)
    assert result.run.status is RunStatus.WAITING and result.n_waiting == 2
    assert 3 <= result.progress.n_judged <= 4, "one verdict more, and that of the answer where it is a program"

"""What language models were paid for outlives the sitting that paid: open conversations and waiting plans."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.here import here
from support.landscape import correct
from support.llm_server import Asked, LlmServer, Reply, answer, hanging
from support.runs import make_run
from support.staging import BRIEF, PROBLEM, said

from db.actor import ArchiveActor
from db.records import EntryPoint
from evolve import conversations
from evolve.config import load_config
from evolve.run import resume_search, run_search
from islands.actor import IslandActor
from islands.dialogues import DialogueSettings
from islands.seed import Seed

RUN_ID = "r1a2b3c4"
PLANS = json.dumps(
    [
        {"technique": "num_warps", "construct": "launch", "change": f"{n} warps", "why": "waits", "effect_pct": 5}
        for n in (2, 8, 16)
    ]
)


async def talking_island() -> Any:
    made_of = {"island_id": 0, "run_id": RUN_ID, "problem_id": PROBLEM.problem_id, "entry_point": EntryPoint.MODEL}
    island = here(IslandActor, **made_of)
    await island.talk.remote(BRIEF, DialogueSettings(operators=("plan",)))
    return island


async def sat_through(archive: Any) -> list[str]:
    """One sitting: a planner answers, one plan is with an executor when it ends. What was asked, as prompts."""
    first = await talking_island()
    (seed,) = await first.seed.remote([Seed(source=PROBLEM.seeds[0], origin="softmax")])
    await first.tell.remote([correct(seed, 100.0)])
    (planning,) = await first.questions.remote(1)
    await first.answered.remote(planning.dialogue_id, said(PLANS))
    (executing,) = await first.questions.remote(1)
    await conversations.keep(archive, RUN_ID, [first])
    return [one.request.messages[-1].content for one in (planning, executing)]


def test_a_conversation_that_was_cut_and_plans_that_wait_are_taken_up_once(tmp_path: Path) -> None:
    async def sittings() -> None:
        archive = here(ArchiveActor, str(tmp_path / "a.duckdb"))
        await archive.add_problem.remote(PROBLEM)
        await archive.add_run.remote(make_run(PROBLEM, run_id=RUN_ID))
        _, executing = await sat_through(archive)
        second, killed = await talking_island(), await talking_island()
        await conversations.take_up(archive, RUN_ID, [second], is_once=True)
        asked = await second.questions.remote(1)
        assert [one.request.messages[-1].content for one in asked] == [executing]
        state = await second.dump_dialogues.remote()
        assert [one.plan.change for one in state.notebook.plans] == ["8 warps", "16 warps"]
        await conversations.take_up(archive, RUN_ID, [killed], is_once=True)
        assert (await killed.dump_dialogues.remote()).dialogues == ()
        await archive.close.remote()

    asyncio.run(sittings())


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
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y


def get_inputs():
    return [torch.randn(64, 1024)]
"""


@pytest.mark.slow
def test_a_run_that_is_resumed_goes_on_with_what_its_models_were_asked(ray_session: None, tmp_path: Path) -> None:
    file, is_first = tmp_path / "double.py", True
    file.write_text(DOUBLE)

    def script(asked: Asked) -> Reply:
        if "different plans" in prompt_of(asked):
            return answer(PLANS)
        return hanging() if is_first else answer("nothing more")

    with LlmServer(script) as server:
        options: dict[str, Any] = {
            "archive": str(tmp_path / "a.duckdb"),
            "out": str(tmp_path / "out"),
            "device": "cpu",
            "islands": 1,
        }
        models = [f"openai/scripted,api_base={server.api_base},unpriced"]
        sets = ["llm.in_flight=1", 'llm.operators=["plan"]', "stop_at_roofline=1"]
        ended = run_search(load_config(str(file), sets=sets, options={**options, "evaluations": 5, "models": models}))
        n_before, is_first = len(server.asked), False
        resume_search(options["archive"], ended.run.run_id, n_more=2)
        before, after = server.asked[:n_before], server.asked[n_before:]
    assert "different plans" in prompt_of(before[0])
    assert "different plans" not in prompt_of(after[0]), "plans that wait come before new ones"


def prompt_of(asked: Asked) -> str:
    return str(asked.body["messages"][-1]["content"])

"""Programs, models and answers for tests of conversations: judged variants of the suite's softmax."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from db.measures import Tier
from db.records import Candidate, Capture, EntryPoint, Launch, Lineage, TorchOp
from evaluators.problems import load_problem
from islands.dialogues import Brief, Dialogues, DialogueSettings, Question
from islands.grid import Occupant
from islands.llm.exchange import Completion
from tests.support.landscape import correct
from tests.support.prompt_facts import GPU, STATE, verdict

PROBLEM = load_problem("softmax")
SOURCE = PROBLEM.seeds[0]
BRIEF = Brief(problem=PROBLEM, hardware=GPU, triton_version="3.7.1")


def variant(warps: int) -> str:
    """The seed with another number of warps: another program."""
    return SOURCE.replace("num_warps=4", f"num_warps={warps}")


def candidate_of(source: str, candidate_id: str = "r-0-000000", **lineage: Any) -> Candidate:
    return Candidate(
        candidate_id=candidate_id,
        run_id="r",
        problem_id=PROBLEM.problem_id,
        island=0,
        source=source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(**{"operator": "seed", **lineage}),
    )


def elite(
    warps: int = 4,
    latency_us: float = 800.0,
    *,
    tier: Tier = Tier.MEMORY_BOUND,
    captures: Sequence[Capture] = (),
    advised: Sequence[str] = (),
    **lineage: Any,
) -> Occupant:
    """A correct program whose bottleneck is known; lineage by name."""
    candidate = candidate_of(variant(warps), **lineage)
    report = verdict().bottleneck
    assert report is not None
    judged = correct(candidate, latency_us, tier=tier, bottleneck=report.model_copy(update={"techniques": advised}))
    return Occupant(candidate, judged.model_copy(update={"captures": tuple(captures)}))


def capture(*kernels: Sequence[str], outputs: Sequence[str] = (), torch_ops: Sequence[str] = ()) -> Capture:
    """Launches in a row, each a name and what its pointers are bound to; operations of torch by their bindings."""
    launches = tuple(
        Launch(
            kernel=name,
            grid=(1, 1, 1),
            num_warps=4,
            shared_bytes=0,
            text_hash=name,
            binding_hash="",
            tensors=tuple(tensors),
        )
        for name, *tensors in kernels
    )
    return Capture(
        workload="full",
        target="h200",
        triton_version="3.7.1",
        launches=launches,
        torch_ops=tuple(TorchOp(name="aten.sum", moved_bytes=4, binding=binding) for binding in torch_ops),
        outputs=tuple(outputs),
    )


STATE_KEY = STATE.key


def said(text: str, *, model: str = "openai/x", cost_usd: float | None = 0.01, seconds: float = 2.0) -> Completion:
    return Completion(
        text=text, model=model, finish_reason="stop", n_tokens_in=1, n_tokens_out=1, cost_usd=cost_usd, seconds=seconds
    )


def whole(warps: int, expect: str = "12%") -> str:
    """An answer that is a whole program."""
    return (
        f"TECHNIQUE: num_warps\nCHANGE: {warps} warps\nEXPECT: {expect}\n\n```python\n{variant(warps).rstrip()}\n```\n"
    )


def talking(*operators: str, brief: Brief = BRIEF, **settings: Any) -> Dialogues:
    """Conversations of an island that begin with these operators alone."""
    chosen = {"operators": operators} if operators else {}
    return Dialogues(brief, DialogueSettings.model_validate({"in_flight": 8, **chosen, **settings}), island_id=0)


def ask(dialogues: Dialogues, *elites: Occupant, n: int = 1, seed: int = 0) -> list[Question]:
    ranked = sorted(elites, key=lambda one: one.rank)
    for one in ranked:
        dialogues.seen(one)
    return dialogues.ask(n, ranked, random.Random(seed))


def text_of(question: Question) -> str:
    return "\n".join(message.content for message in question.request.messages)

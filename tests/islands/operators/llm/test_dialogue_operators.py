"""What each operator says when it begins a conversation, and what it makes of the answer."""

from __future__ import annotations

import json
import math
import random

import pytest

from db.measures import Tier
from db.profile import KernelProfile, Profile, Stall
from islands.dialogues import DialogueSettings
from islands.grid import Occupant
from islands.knowledge import Attempt, KnowledgeBase
from islands.llm.exchange import Failure, FailureKind
from islands.llm.models import Role
from islands.operators import default_operators
from islands.operators.llm import DialogueOperator, Stage, dialogue_operators
from islands.operators.llm.ancestry import Ancestry
from islands.operators.llm.attempts import attempt_facts
from islands.operators.llm.fuse import fusions_of
from islands.operators.llm.notebook import ComparedAttempt, Notebook
from islands.prompts import Facts
from islands.prompts.facts import gpu_facts, problem_facts
from islands.settings import IslandSettings
from tests.support.decompositions import decomposition_of
from tests.support.landscape import correct, failed
from tests.support.prompt_facts import GPU
from tests.support.staging import (
    BRIEF,
    PROBLEM,
    STATE_KEY,
    ask,
    candidate_of,
    capture,
    elite,
    said,
    talking,
    text_of,
    variant,
    whole,
)

SETTINGS = DialogueSettings()
TWO_KERNELS = capture(
    ("row_max", "x0+0:float32(64, 128)(128, 1)", "t1+0:float32(64,)(1,)"),
    ("row_scale", "x0+0:float32(64, 128)(128, 1)", "t1+0:float32(64,)(1,)", "t2+0:float32(64, 128)(128, 1)"),
    outputs=("t2+0:float32(64, 128)(128, 1)",),
)
PLANS = json.dumps(
    [
        {"technique": "num_warps", "construct": "the launch", "change": "8 warps", "why": "loads", "effect_pct": 20},
        {"technique": "exp2", "construct": "the kernel", "change": "exp2", "why": "SFU", "effect_pct": 5},
    ]
)


def stage(*elites, knowledge: KnowledgeBase | None = None, brief=BRIEF) -> Stage:  # type: ignore[no-untyped-def]
    ancestry = Ancestry()
    for one in elites:
        ancestry.see(one)
    return Stage(
        brief=brief,
        settings=SETTINGS,
        facts=Facts(problem=problem_facts(PROBLEM), gpu=gpu_facts(GPU)),
        elites=sorted(elites, key=lambda one: one.rank),
        ancestry=ancestry,
        notebook=Notebook(),
        knowledge=knowledge,
    )


AUTHORS = ("mutate", "crossover", "plan", "execute", "fuse", "synthesize")
ALL = [one for one in dialogue_operators(SETTINGS) if one.name in AUTHORS]


@pytest.mark.parametrize("operator", ALL, ids=lambda one: one.name)
def test_an_operator_begins_the_same_conversation_again(operator: DialogueOperator) -> None:
    assert isinstance(operator, DialogueOperator)
    elites = (elite(4, 800.0, captures=[TWO_KERNELS]), elite(8, 700.0, captures=[TWO_KERNELS]), elite(2, 900.0))
    openings = []
    for _ in range(2):
        one = stage(*elites) if operator.n_parents else stage(brief=without_seeds())
        if operator.name == "execute":
            operators["plan"].read(said(PLANS), opened("plan", one), one)
        for n in range(SETTINGS.reflect_every if operator.name == "reflect" else 0):
            one.notebook.compare(ComparedAttempt(operator="mutate", program_id=f"p{n}", technique="exp2", change="x"))
        if operator.name == "judge":
            one.notebook.reflections.consider(elites[0].as_evaluation())
        assert operator.applies(one)
        openings.append(operator.begin(one, random.Random(3)))
    assert openings[0] == openings[1] is not None
    assert len(openings[0].parents) == operator.n_parents


operators = {one.name: one for one in ALL}


def opened(name: str, one: Stage):  # type: ignore[no-untyped-def]
    """The state of a conversation that an operator began."""
    dialogues = talking(name)
    ask(dialogues, *one.elites)
    return dialogues.dump().dialogues[0]


def without_seeds():  # type: ignore[no-untyped-def]
    return BRIEF.model_copy(update={"problem": PROBLEM.model_copy(update={"seeds": ()})})


def test_only_a_problem_without_a_seed_is_written_from_scratch() -> None:
    assert [one.name for one in ALL if one.applies(stage())] == []
    assert [one.name for one in ALL if one.applies(stage(brief=without_seeds()))] == ["synthesize"]
    with_elite = [one.name for one in ALL if one.applies(stage(elite(), brief=without_seeds()))]
    assert with_elite == ["mutate", "plan"]


def test_a_part_of_a_model_is_written_from_its_reference_once() -> None:
    parts = {p.part.name: p for p in decomposition_of("conv_epilogue").parts}
    piece, kernel = parts["part_28_28"], parts["part_9_9"]
    assert (piece.reference, kernel.reference) == ("aten", "kernel") and piece.problem.seeds
    assert not operators["synthesize"].applies(stage(brief=BRIEF.model_copy(update={"problem": kernel.problem})))
    dialogues = talking(brief=BRIEF.model_copy(update={"problem": piece.problem}))
    (question,) = dialogues.ask(1, [], random.Random(0))
    assert question.request.operator == "synthesize" and "max_pool2d" in text_of(question)
    assert dialogues.ask(1, [], random.Random(0)) == []
    again = talking(brief=BRIEF.model_copy(update={"problem": piece.problem}))
    again.restore(dialogues.dump())
    (repeated,) = again.ask(2, [], random.Random(0))
    assert repeated.dialogue_id == question.dialogue_id  # asked again, and no second one
    recalled = talking(brief=BRIEF.model_copy(update={"problem": piece.problem}))
    one = candidate_of(variant(4), operator="synthesize", model="m")
    recalled.told("elsewhere", correct(one, 90.0), one.lineage)
    assert recalled.ask(1, [], random.Random(0)) == []


def test_mutate_shows_the_way_to_its_parent_and_what_other_cells_hold() -> None:
    seed = elite(4, 800.0)
    child = elite(8, 600.0, operator="mutate", technique="num_warps", detail="8 warps", parents=(seed.program_id,))
    same_tier, other_tier = elite(16, 610.0), elite(2, 900.0, tier=Tier.COMPUTE_BOUND)
    (question,) = ask(talking("mutate", n_inspirations=1), seed, child, same_tier, other_tier, seed=1)
    text = text_of(question)
    shown = [program for program in (seed, child, same_tier, other_tier) if program.candidate.source.strip() in text]
    assert other_tier in shown and len(shown) == 2
    chain = stage(seed, child).about(child)
    assert [step.what for step in chain.lineage] == ["seed", "num_warps: 8 warps"]
    assert "1.33x faster" in chain.lineage[-1].came_of_it


def test_mutate_is_told_what_knowledge_expects_remembers_and_avoids() -> None:
    knowledge = KnowledgeBase({one.name: one for one in default_operators()}, IslandSettings())
    parent = elite(4, advised=["loop_pipeline", "exp2"])
    situation = stage(parent).techniques  # without knowledge: what the report advises
    assert [one.name for one in situation(parent)] == ["loop_pipeline", "exp2"]
    about = Attempt("num_warps", situation_of(parent), math.log2(1.5), "num_warps of softmax_kernel 4 -> 8")
    for _ in range(8):
        knowledge.told(about)
    for _ in range(4):
        knowledge.told(about._replace(technique="exp2", octaves=None, detail="exp2"))
    facts = stage(parent, knowledge=knowledge).about(parent)
    names = [one.name for one in facts.techniques]
    assert "num_warps" in names and "loop_pipeline" in names and "exp2" not in names
    expected = {one.name: one.expected for one in facts.techniques}
    assert expected["num_warps"].endswith("faster") and len(names) <= 6
    assert any("num_warps" in item and "1.50x faster" in item for item in facts.memory)
    assert any(item.startswith("exp2") for item in facts.avoid)


def situation_of(parent):  # type: ignore[no-untyped-def]
    from islands.strategies.advisers import situation_of

    return situation_of(parent)


def test_crossover_says_what_each_parent_is_good_at_and_takes_neither_for_an_answer() -> None:
    dialogues = talking("crossover")
    fast, exact = elite(4, 500.0), elite(8, 800.0, captures=[TWO_KERNELS])
    slim = exact._replace(verdict=exact.verdict.model_copy(update={"captures": ()}))
    (question,) = ask(dialogues, fast, slim)
    assert question.request.operator == "crossover" and "faster: 500.00 us against 800.00 us" in text_of(question)
    (state,) = dialogues.dump().dialogues
    assert set(state.parents) == {fast.program_id, slim.program_id}
    for warps in (4, 8):
        assert dialogues.answered(question.dialogue_id, said(whole(warps))) is None
        if warps == 4:
            (question,) = dialogues.ask(1, [], random.Random(0))
            assert "the one you were shown" in text_of(question)
    assert not dialogues.is_waiting


def test_a_child_of_two_parents_names_both() -> None:
    dialogues = talking("crossover")
    (question,) = ask(dialogues, elite(4, 500.0), elite(8, 800.0))
    written = dialogues.answered(question.dialogue_id, said(whole(16)))
    assert written is not None and written.lineage.operator == "crossover" and len(written.lineage.parents) == 2


def test_plans_are_carried_out_one_by_one_and_compared_with_what_they_promised() -> None:
    dialogues = talking("plan")
    parent = elite(4, 800.0)
    (asked,) = ask(dialogues, parent)
    assert (asked.request.operator, asked.request.role) == ("plan", Role.PLANNER)
    assert "Propose 4 different plans" in text_of(asked)
    assert dialogues.answered(asked.dialogue_id, said(PLANS)) is None
    first, second, third = ask(dialogues, parent, n=3)
    assert [q.request.operator for q in (first, second, third)] == ["execute", "execute", "plan"]
    assert first.request.role is Role.EXECUTOR and "change: 8 warps" in text_of(first)
    written = dialogues.answered(first.dialogue_id, said(whole(8, expect="90%")))
    assert written is not None
    assert (written.lineage.operator, written.lineage.state) == ("execute", STATE_KEY)
    assert written.lineage.predicted_octaves == pytest.approx(-math.log2(0.8))  # the planner's, not the executor's
    assert written.lineage.diagnosis == "the launch: loads"
    dialogues.admitted(first.dialogue_id, "r-0-000001")
    dialogues.told("r-0-000001", correct(candidate_of(variant(8), "r-0-000001"), 1000.0))
    resumed = talking("plan")
    resumed.told("r-0-000001", correct(candidate_of(variant(8), "r-0-000001"), 1000.0), written.lineage)
    assert [attempt_facts(one).why for one in resumed.recent_attempts] == ["the launch: loads"]
    (attempt,) = dialogues.recent_attempts
    assert attempt.plan is not None and attempt.plan.why == "loads"
    assert attempt.octaves == pytest.approx(math.log2(0.8)) and attempt.came_of_it == "1000.00 us, 1.25x slower"
    assert attempt.cause
    (later,) = ask(dialogues, parent)
    assert "8 warps" in text_of(later) and "expected to be 1.25x faster, came to this: 1000.00 us" in text_of(later)


def test_a_plan_whose_executor_is_out_of_order_for_a_while_is_carried_out_later() -> None:
    dialogues = talking("plan")
    (asked,) = ask(dialogues, elite())
    dialogues.answered(asked.dialogue_id, said(PLANS))
    (first,) = ask(dialogues, elite())
    fault = Failure(kind=FailureKind.SERVER, reason="status 503", is_final=False)
    dialogues.answered(first.dialogue_id, fault)
    changes = [waiting.plan.change for waiting in dialogues.notebook.plans]
    assert sorted(changes) == ["8 warps", "exp2"]
    second, third = ask(dialogues, elite(), n=2)
    assert {second.request.operator, third.request.operator} == {"execute"}
    dialogues.answered(second.dialogue_id, fault.model_copy(update={"is_final": True}))
    assert not dialogues.notebook.plans


def test_an_answer_without_a_plan_goes_back_once() -> None:
    dialogues = talking("plan")
    (asked,) = ask(dialogues, elite())
    assert dialogues.answered(asked.dialogue_id, said("Use fewer registers.")) is None
    (again,) = dialogues.ask(1, [], random.Random(0))
    assert (again.request.operator, again.request.role) == ("plan", Role.PLANNER)
    assert dialogues.answered(again.dialogue_id, said(PLANS)) is None
    assert len(dialogues.notebook.plans) == 2


def test_what_a_plan_became_is_repaired_by_the_executor() -> None:
    dialogues = talking("plan")
    parent = elite(4, 800.0)
    (asked,) = ask(dialogues, parent)
    dialogues.answered(asked.dialogue_id, said(PLANS))
    (execute,) = ask(dialogues, parent)
    dialogues.answered(execute.dialogue_id, said(whole(8)))
    dialogues.admitted(execute.dialogue_id, "r-0-000001")
    dialogues.told("r-0-000001", failed(candidate_of(variant(8), "r-0-000001"), "out of registers"))
    (repair,) = ask(dialogues, parent)
    assert (repair.dialogue_id, repair.request.operator) == (execute.dialogue_id, "repair")
    assert repair.request.role is Role.EXECUTOR and "out of registers" in text_of(repair)
    written = dialogues.answered(repair.dialogue_id, said(whole(16)))
    assert written is not None and written.lineage.operator == "repair"
    assert written.lineage.parents == (parent.program_id,)


def test_kernels_in_a_row_are_fused_with_what_lies_between_them() -> None:
    ((fusion, n_bytes),) = fusions_of(TWO_KERNELS)
    assert (fusion.first, fusion.second) == ("row_max", "row_scale")
    assert fusion.buffers == ("t1: float32 (64), 256 bytes",) and n_bytes == 256  # no input, and no output
    dialogues = talking("fuse")
    assert ask(dialogues, elite(captures=[capture(("alone",))])) == []
    (question,) = ask(dialogues, elite(captures=[TWO_KERNELS]))
    text = text_of(question)
    assert "`row_max` and `row_scale`" in text and "t1: float32 (64), 256 bytes" in text
    written = dialogues.answered(question.dialogue_id, said(whole(8)))
    assert written is not None and written.lineage.operator == "fuse"


def test_a_fusion_shows_what_both_kernels_take_and_wait_for() -> None:
    parent, waiting = elite(captures=[TWO_KERNELS]), Stall(reason="long_scoreboard", cycles=9.0, share=0.61)
    first = KernelProfile(kernel="row_max", n_registers=32)
    second = KernelProfile(kernel="row_scale", n_registers=168, shared_bytes=49152, stalls=(waiting,))
    read = Profile(source="ncu", dominant="row_max", n_registers=32, kernels=(first, second))
    verdict = parent.verdict.model_copy(update={"profile": read})
    (question,) = ask(talking("fuse"), Occupant(parent.candidate, verdict))
    (line,) = [line for line in text_of(question).splitlines() if line.startswith("- row_scale: ")]
    assert "registers per thread 168" in line and "shared memory per program 49.15 KB" in line
    assert "stall long scoreboard: 61% of the waiting" in line
    assert "- row_max: registers per thread 32" in text_of(question)


def test_what_is_returned_does_not_lie_between() -> None:
    returned, kept = "t1+0:float32(4,)(1,)", "t2+0:bfloat16(2, 8)(8, 1)"
    ((fusion, _),) = fusions_of(capture(("a", returned, kept), ("b", returned, kept), outputs=[returned]))
    assert fusion.buffers == ("t2: bfloat16 (2, 8), 32 bytes",)


def test_kernels_with_an_operation_of_torch_between_them_are_not_neighbours() -> None:
    between = capture(("a", "t1+0:float32(4,)(1,)"), ("b", "t1+0:float32(4,)(1,)"), torch_ops=["@1 t1+0 t2+0"])
    before = capture(("a", "t1+0:float32(4,)(1,)"), ("b", "t1+0:float32(4,)(1,)"), torch_ops=["@0 t1+0"])
    assert fusions_of(between) == [] and len(fusions_of(before)) == 1


def test_a_first_program_is_written_whole() -> None:
    dialogues = talking(brief=without_seeds())
    (question,) = dialogues.ask(1, [], random.Random(0))
    assert question.request.operator == "synthesize" and "Write the first Triton program" in text_of(question)
    edit = "<<<<<<< SEARCH\n    num_warps=4\n=======\n    num_warps=8\n>>>>>>> REPLACE\n"
    assert dialogues.answered(question.dialogue_id, said(edit)) is None
    (again,) = dialogues.ask(1, [], random.Random(0))
    assert "no program to edit yet" in text_of(again)
    written = dialogues.answered(again.dialogue_id, said(whole(8)))
    assert written is not None and written.lineage.parents == () and written.lineage.operator == "synthesize"


def test_every_operator_keeps_to_the_evolve_block() -> None:
    marked = f"# EVOLVE-BLOCK-START\n{variant(4)}# EVOLVE-BLOCK-END\nLIMIT = 1\n"
    outside = marked.replace("LIMIT = 1", "LIMIT = 2")
    for name in ("mutate", "crossover", "plan", "fuse"):
        dialogues = talking(name)
        parent = elite(4, 800.0, captures=[TWO_KERNELS])
        parent = parent._replace(candidate=parent.candidate.model_copy(update={"source": marked}))
        other = elite(8, 9000.0)  # far too slow to be the first parent
        (question,) = ask(dialogues, parent, *([other] if name == "crossover" else []), seed=2)
        if name == "plan":
            dialogues.answered(question.dialogue_id, said(PLANS))
            (question,) = ask(dialogues, parent)
        assert "keep the markers" in text_of(question)
        dialogues.answered(question.dialogue_id, said(f"```python\n{outside}```"))
        (again,) = dialogues.ask(1, [], random.Random(0))
        refusal = again.request.messages[-1].content
        assert again.dialogue_id == question.dialogue_id and "EVOLVE-BLOCK" in refusal, refusal

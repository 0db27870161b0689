"""Who is asked next: by operator and model, by what a gain cost, over plans, repairs, fallbacks and resumes."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from islands.dialogues import ArmSpend, Dialogues, DialoguesState
from islands.llm.bandit import Arm
from islands.llm.exchange import Failure, FailureKind
from islands.llm.models import Role, read_models
from islands.operators.llm.choice import Choice
from tests.support.landscape import correct, failed
from tests.support.staging import BRIEF, ask, candidate_of, elite, said, talking, variant, whole

MODELS = read_models(["openai/dear", "openai/cheap"])
BOTH = BRIEF.model_copy(update={"models": MODELS})
PLANS = json.dumps(
    [
        {"technique": "num_warps", "construct": "launch", "change": f"{n} warps", "why": "loads", "effect_pct": 20}
        for n in (8, 16)
    ]
)


def earnings(dialogues: Dialogues) -> dict[Arm, tuple[float, float, float]]:
    """Tries, octaves and dollars of every arm that was tried."""
    known = dialogues.dump().bandit.earnings
    return {Arm(one.model, one.operator): (one.weight, one.octaves, one.usd) for one in known if one.weight}


def judged(dialogues: Dialogues, dialogue_id: str, warps: int, latency_us: float | None, **how: object) -> None:
    """A whole program for an answer, and its verdict."""
    assert dialogues.answered(dialogue_id, said(whole(warps), **how)) is not None  # type: ignore[arg-type]
    candidate = candidate_of(variant(warps), f"r-0-{warps:06d}")
    dialogues.admitted(dialogue_id, candidate.candidate_id)
    verdict = failed(candidate) if latency_us is None else correct(candidate, latency_us)
    dialogues.told(candidate.candidate_id, verdict)


def test_models_are_preferred_by_their_role() -> None:
    models = read_models([{"model": "openai/thinker", "role": "planner"}, "openai/coder"])
    dialogues = talking("mutate", "plan", brief=BRIEF.model_copy(update={"models": models}))
    asked = ask(dialogues, elite(), n=8)
    preferred = {(q.request.operator, q.request.preferred) for q in asked}
    assert preferred == {("plan", "openai/thinker"), ("mutate", "openai/coder")}
    assert {q.request.asked for q in asked} == {"planner", "executor"}  # a recording does not tell models apart


def test_the_user_s_weights_count() -> None:
    heavy = read_models(["openai/a:9", "openai/b"])
    brief = BRIEF.model_copy(update={"models": heavy})
    chosen: Counter[str] = Counter()
    for seed in range(80):
        (question,) = ask(talking("mutate", brief=brief), elite(), seed=seed)
        chosen[question.request.preferred] += 1
    assert chosen["openai/a"] > 3 * chosen["openai/b"] > 0


def test_without_models_any_of_the_role_is_asked() -> None:
    (question,) = ask(talking("mutate"), elite())
    assert (question.request.model, question.request.preferred) == ("", "")


def test_a_conversation_earns_what_its_program_gained_for_all_its_answers() -> None:
    dialogues = talking("mutate", brief=BOTH)
    (question,) = ask(dialogues, elite(4, 800.0))
    model = question.request.preferred
    judged(dialogues, question.dialogue_id, 8, None, model=model, cost_usd=0.01)
    (repair,) = ask(dialogues)
    assert repair.request.preferred == model
    judged(dialogues, repair.dialogue_id, 16, 400.0, model=model, cost_usd=0.03)
    assert earnings(dialogues) == {Arm(model, "mutate"): (1.0, pytest.approx(1.0), pytest.approx(0.04))}


def test_planning_earns_what_its_plans_gained_for_what_they_cost_together() -> None:
    dialogues = talking("plan", brief=BOTH)
    parent = elite(4, 800.0)
    (plan,) = ask(dialogues, parent)
    dialogues.answered(plan.dialogue_id, said(PLANS, model="openai/dear", cost_usd=0.5))
    first, second = ask(dialogues, parent, n=2)
    judged(dialogues, first.dialogue_id, 8, 400.0, model="openai/cheap", cost_usd=0.01)
    assert Arm("openai/dear", "plan") not in earnings(dialogues)  # a plan is under way yet
    judged(dialogues, second.dialogue_id, 16, 1600.0, model="openai/cheap", cost_usd=0.02)
    known = earnings(dialogues)
    assert known[Arm("openai/dear", "plan")] == (1.0, pytest.approx(1.0), pytest.approx(0.53))
    assert known[Arm("openai/cheap", "execute")][2] == pytest.approx(0.03, rel=0.05)  # older tries count for less


def test_nothing_is_planned_while_plans_wait() -> None:
    dialogues = talking("plan")
    parent = elite()
    (plan,) = ask(dialogues, parent)
    dialogues.answered(plan.dialogue_id, said(PLANS))
    operators = [q.request.operator for q in ask(dialogues, parent, n=3)]
    assert operators == ["execute", "execute", "plan"]


def test_the_model_that_answered_is_credited() -> None:
    dialogues = talking("mutate", brief=BOTH)
    (question,) = ask(dialogues, elite(4, 800.0))
    other = "openai/dear" if question.request.preferred == "openai/cheap" else "openai/cheap"
    judged(dialogues, question.dialogue_id, 8, 400.0, model=other)
    assert set(earnings(dialogues)) == {Arm(other, "mutate")}


def test_a_call_that_failed_counts_and_one_that_nobody_took_does_not() -> None:
    dialogues = talking("mutate", brief=BOTH)
    (question,) = ask(dialogues, elite())
    nobody = Failure(kind=FailureKind.NO_MODEL, reason="every circuit is open", is_final=False)
    dialogues.answered(question.dialogue_id, nobody)
    assert earnings(dialogues) == {}
    (question,) = ask(dialogues, elite())
    slow = Failure(kind=FailureKind.TIMEOUT, reason="late", is_final=False, model="openai/dear", seconds=9, n_tries=1)
    dialogues.answered(question.dialogue_id, slow)
    assert earnings(dialogues) == {Arm("openai/dear", "mutate"): (1.0, 0.0, 0.0)}


def test_what_was_learnt_survives_and_the_list_of_models_may_change() -> None:
    dialogues = talking("mutate", brief=BOTH)
    (question,) = ask(dialogues, elite(4, 800.0))
    judged(dialogues, question.dialogue_id, 8, 400.0, model="openai/cheap")
    state = DialoguesState.model_validate_json(dialogues.dump().model_dump_json())
    other = BRIEF.model_copy(update={"models": read_models(["openai/new", "openai/cheap"])})
    again = talking("mutate", brief=other, in_flight=100)
    again.restore(state)
    assert earnings(again) == earnings(dialogues) and again.recent_attempts == dialogues.recent_attempts
    asked = Counter(q.request.preferred for q in ask(again, elite(), n=100))
    assert set(asked) == {"openai/new", "openai/cheap"}


def test_an_earlier_sitting_is_known_by_its_programs_and_what_it_paid() -> None:
    spent = (
        ArmSpend(model="openai/dear", operator="mutate", n_calls=10, usd=5.0, seconds=50),
        ArmSpend(model="openai/cheap", operator="mutate", n_calls=10, usd=0.1, seconds=50),
        ArmSpend(model="openai/cheap", operator="repair", n_calls=5, usd=0.05, seconds=10),
        ArmSpend(model="openai/dear", operator="plan", n_calls=2, usd=1.0, seconds=20),
        ArmSpend(model="openai/cheap", operator="execute", n_calls=8, usd=0.16, seconds=40),
    )
    dialogues = talking("mutate", brief=BOTH.model_copy(update={"spent": spent}))
    parent = elite(4, 800.0)
    dialogues.seen(parent)
    for warps, operator, model in ((8, "mutate", "openai/dear"), (16, "execute", "openai/cheap")):
        child = candidate_of(
            variant(warps), operator=operator, technique="num_warps", parents=(parent.program_id,), model=model
        )
        dialogues.told(child.candidate_id, correct(child, 400.0), child.lineage)
    assert dialogues.resume() == []
    known = earnings(dialogues)
    assert known[Arm("openai/dear", "mutate")] == (10.0, pytest.approx(1.0), pytest.approx(5.0))
    assert known[Arm("openai/dear", "plan")] == (2.0, pytest.approx(1.0), pytest.approx(1.0 + known_usd(dialogues)))
    assert known[Arm("openai/cheap", "mutate")][1] == 0.0
    repairs = known[Arm("openai/cheap", "mutate")][2] - 0.1 + known[Arm("openai/cheap", "execute")][2] - 0.16
    assert repairs == pytest.approx(0.05)
    assert len(dialogues.recent_attempts) == 2


def known_usd(dialogues: Dialogues) -> float:
    return earnings(dialogues)[Arm("openai/cheap", "execute")][2]


def test_an_operator_without_a_model_is_passed_over() -> None:
    choice = Choice(read_models([{"model": "openai/thinker", "role": "planner"}]))
    plan, mutate = (talking(name)._operators[name] for name in ("plan", "mutate"))
    assert mutate.role is Role.EXECUTOR
    assert choice.choose([mutate], random.Random(0)) is None
    assert choice.choose([mutate, plan], random.Random(0)) == (plan, "openai/thinker")


def test_plans_that_nobody_can_carry_out_are_not_made_again() -> None:
    models = read_models([{"model": "openai/thinker", "role": "planner"}])
    dialogues = talking("plan", brief=BRIEF.model_copy(update={"models": models}), reflect_every=0)
    (plan,) = ask(dialogues, elite())
    dialogues.answered(plan.dialogue_id, said(PLANS))
    assert ask(dialogues, elite()) == []


def test_the_operator_that_pays_is_asked_most() -> None:
    dialogues = talking("mutate", "crossover", brief=BOTH, in_flight=1)
    parents = elite(4, 800.0), elite(2, 820.0)
    chosen: Counter[str] = Counter()
    for k in range(120):
        (question,) = ask(dialogues, *parents, seed=k)
        chosen[question.request.operator] += 1
        written = dialogues.answered(question.dialogue_id, said(whole(8), model=question.request.preferred))
        assert written is not None
        dialogues.admitted(question.dialogue_id, "r-0-000008")
        is_good = question.request.operator == "crossover"
        dialogues.told("r-0-000008", correct(candidate_of(variant(8), "r-0-000008"), 500.0 if is_good else 900.0))
    assert chosen["crossover"] > 3 * chosen["mutate"] > 0

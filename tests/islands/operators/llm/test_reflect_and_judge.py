"""Models that look back: when they are asked, what they are shown, and what becomes of good and bad answers."""

from __future__ import annotations

import json
import random

import pytest

from db.profile import Bottleneck
from db.reflections import LearntTechnique
from islands.dialogues import Dialogues, DialogueSettings, DialoguesState
from islands.grid import Occupant
from islands.knowledge import KnowledgeBase
from islands.llm.exchange import Failure, FailureKind
from islands.llm.models import Role
from islands.reflection import Taught
from islands.settings import IslandSettings
from tests.support.landscape import correct, failed
from tests.support.prompt_facts import STATE
from tests.support.staging import BRIEF, ask, candidate_of, elite, said, talking, text_of, variant, whole

REFLECTION = json.dumps(
    {
        "memory": [{"action": "append", "text": "Eight warps cover for loads."}],
        "explanations": [
            {"attempt": 2, "diagnosis_was_right": True, "fix_worked": False, "cause": "barriers", "avoid": "32 warps"}
            | {"try_next": "two stages"}
        ],
        "techniques": [
            {"name": "Halve Tiles", "changes": "Halves.", "instruction": "Halve them.", "addresses": [STATE.primary]}
        ],
    }
)
OPINION = json.dumps({"concerns": [{"kind": "faked", "line": 3, "what": "returns zeros"}], "advice": "compute it"})
PARENT = elite()


def attempt(dialogues: Dialogues, warps: int, *, works: bool = True) -> None:
    """One conversation of a model to its verdict."""
    (question,) = ask(dialogues, PARENT, seed=warps)
    assert question.request.operator == "mutate"
    written = dialogues.answered(question.dialogue_id, said(whole(warps)))
    assert written is not None
    made = candidate_of(written.source, f"r-0-{warps:06d}")
    dialogues.admitted(question.dialogue_id, made.candidate_id)
    verdict = correct(made, 1000.0 - warps) if works else failed(made, "it differs")
    dialogues.told(made.candidate_id, verdict)


def after(n: int, every: int = 2, **more: object) -> Dialogues:
    """Conversations of an island after `n` attempts, of which the second failed."""
    dialogues = talking("mutate", reflect_every=every, n_repairs=0, **more)
    for k in range(n):
        attempt(dialogues, 2**k if k < 2 else 2 ** (k + 1), works=k != 1)
    return dialogues


def test_attempts_are_reflected_on_when_there_are_enough_of_them() -> None:
    dialogues = after(1)
    (question,) = ask(dialogues, PARENT)
    assert question.request.operator == "mutate"
    (question,) = ask(after(2), PARENT)
    assert (question.request.operator, question.request.role) == ("reflect", Role.REFLECTOR)
    text = text_of(question)
    assert "1. num_warps: 1 warps" in text and "Expected: 1.14x faster" in text and "999.00 us" in text
    assert "2. num_warps: 2 warps" in text and "it differs" in text
    assert "It is empty." in text and "- online_softmax" in text


def test_they_are_never_reflected_on_where_nobody_wants_it() -> None:
    (question,) = ask(after(3, every=0), PARENT)
    assert question.request.operator == "mutate"


def test_an_answer_changes_what_later_prompts_say() -> None:
    dialogues = after(2)
    (question,) = ask(dialogues, PARENT)
    assert dialogues.answered(question.dialogue_id, said(REFLECTION)) is None
    (later,) = ask(dialogues, PARENT)
    text = text_of(later)
    assert later.request.operator == "mutate" and "- Eight warps cover for loads." in text
    avoid, advice = text.split("# AVOID")[1], text.split("# What reflection advises to try next")[1]
    assert "- 32 warps" in avoid.split("# Task")[0] and "- two stages" in advice.split("# AVOID")[0]
    assert "- halve_tiles: Halve them." in text
    (reflection,) = dialogues.notebook.reflections.take_findings().reflections
    (explained,) = reflection.explanations
    assert (explained.candidate_id, explained.model, explained.fix_worked) == ("r-0-000002", "openai/x", False)
    assert [one.text for one in reflection.lessons] == ["Eight warps cover for loads."]


def test_the_next_reflection_is_about_what_came_since_and_sees_the_memory() -> None:
    dialogues = after(2)
    (question,) = ask(dialogues, PARENT)
    dialogues.answered(question.dialogue_id, said(REFLECTION))
    attempt(dialogues, 8)
    attempt(dialogues, 16)
    (again,) = ask(dialogues, PARENT)
    text = text_of(again)
    assert again.request.operator == "reflect" and "8 warps" in text and "1 warps" not in text.split("# The memory")[0]
    assert "1. Eight warps cover for loads." in text and "- halve_tiles" in text
    better = {"memory": [{"action": "replace", "item": 1, "text": "Better."}]}
    dialogues.answered(again.dialogue_id, said(json.dumps(better)))
    assert dialogues.notebook.reflections.taught.lessons == ("Better.",)


def test_one_reflection_at_a_time() -> None:
    dialogues = after(2)
    (question,) = ask(dialogues, PARENT)
    attempt(dialogues, 8)
    attempt(dialogues, 16)
    (other,) = ask(dialogues, PARENT)
    assert (question.request.operator, other.request.operator) == ("reflect", "mutate")


def test_a_refused_reflection_goes_back_once_and_then_its_attempts_are_let_go() -> None:
    dialogues = after(2)
    (question,) = ask(dialogues, PARENT)
    assert dialogues.answered(question.dialogue_id, said("I liked them all.")) is None
    (again,) = ask(dialogues, PARENT)
    assert again.dialogue_id == question.dialogue_id and "could not be used" in again.request.messages[-1].content
    assert dialogues.answered(again.dialogue_id, said("{}")) is None
    (later,) = ask(dialogues, PARENT)
    assert later.request.operator == "mutate" and dialogues.notebook.reflections.taught == Taught(seen="r-0-000002")


def test_a_model_that_fails_ends_a_reflection() -> None:
    dialogues = after(2)
    (question,) = ask(dialogues, PARENT)
    failure = Failure(kind=FailureKind.TIMEOUT, reason="no answer", is_final=False)
    assert dialogues.answered(question.dialogue_id, failure) is None
    assert not dialogues.is_waiting


def test_a_reflection_that_waits_finds_its_attempts_on_another_day() -> None:
    before = after(2)
    (question,) = ask(before, PARENT)
    state = DialoguesState.model_validate_json(before.dump().model_dump_json(round_trip=True))
    dialogues = talking("mutate", reflect_every=2)
    dialogues.restore(state)
    assert dialogues.notebook.reflections.dump() == before.notebook.reflections.dump()
    dialogues.answered(question.dialogue_id, said(REFLECTION))
    assert dialogues.notebook.reflections.take_findings().reflections[0].explanations[0].candidate_id == "r-0-000002"


def test_attempts_of_an_earlier_sitting_count_unless_they_were_reflected_on() -> None:
    for seen, n_new in (("", 2), ("r-0-000001", 1), ("r-0-000002", 0)):
        dialogues = Dialogues(BRIEF, DialogueSettings(), 0, taught=Taught(seen=seen))
        for n in (1, 2):
            made = candidate_of(variant(n), f"r-0-{n:06d}", operator="mutate", model="openai/x")
            dialogues.told(made.candidate_id, correct(made, 50.0), made.lineage)
        assert dialogues.notebook.reflections.n_new == n_new


@pytest.mark.parametrize("knowledge", [None, KnowledgeBase({}, IslandSettings())], ids=["alone", "beside knowledge"])
def test_what_was_taught_before_the_run_is_shown_from_the_start(knowledge: KnowledgeBase | None) -> None:
    technique = LearntTechnique(
        run_id="earlier", name="swap_axes", changes="c", instruction="Swap.", addresses=(Bottleneck(STATE.primary),)
    )
    taught = Taught(lessons=("old lesson",), avoid=("old trap",), advice=("old hope",), techniques=(technique,))
    dialogues = Dialogues(BRIEF, DialogueSettings(operators=("mutate",)), 0, knowledge, taught)
    (question,) = ask(dialogues, PARENT)
    assert all(
        f"- {words}" in text_of(question) for words in ("old lesson", "old trap", "old hope", "swap_axes: Swap.")
    )


# ------------------------------------------------------------------------------------------------------------ opinions


def consider(dialogues: Dialogues, program: Occupant) -> None:
    dialogues.notebook.reflections.consider(program.as_evaluation())


def test_a_judge_is_asked_about_a_program_once_and_heard_where_it_is_a_parent() -> None:
    dialogues = talking("mutate")
    consider(dialogues, PARENT)
    (question,) = ask(dialogues, PARENT)
    assert (question.request.operator, question.request.role) == ("judge", Role.REFLECTOR)
    assert "Compare the candidate with the reference" in text_of(question) and "num_warps=4" in text_of(question)
    assert dialogues.answered(question.dialogue_id, said(OPINION)) is None
    (later,) = ask(dialogues, PARENT)
    assert later.request.operator == "mutate" and "- faked (line 3): returns zeros" in text_of(later)
    (opinion,) = dialogues.notebook.reflections.take_findings().opinions
    assert (opinion.program_id, opinion.model, opinion.advice) == (PARENT.program_id, "openai/x", "compute it")
    consider(dialogues, PARENT)
    assert dialogues.ask_judge(random.Random(0)) is None


def test_an_opinion_that_cannot_be_read_goes_back_once() -> None:
    dialogues = talking("mutate")
    consider(dialogues, PARENT)
    first = dialogues.ask_judge(random.Random(0))
    assert first is not None and dialogues.answered(first.dialogue_id, said("It looks fine to me.")) is None
    again = dialogues.ask_judge(random.Random(0))
    assert again is not None and again.dialogue_id == first.dialogue_id
    assert dialogues.answered(again.dialogue_id, said("As I said.")) is None
    assert dialogues.ask_judge(random.Random(0)) is None and not dialogues.is_waiting


def test_a_judge_is_asked_beside_questions_that_nobody_answers() -> None:
    """After the search: what is in flight then is never answered."""
    dialogues = talking("mutate", in_flight=1)
    assert len(ask(dialogues, PARENT)) == 1 and ask(dialogues, PARENT) == []
    consider(dialogues, PARENT)
    question = dialogues.ask_judge(random.Random(0))
    assert question is not None and question.request.operator == "judge"

"""What an island asks language models, what it makes of good and bad answers, and when it gives up."""

from __future__ import annotations

import random

import pytest
from support.colony import SEED as LANDSCAPE_SEED
from support.colony import make_island
from support.landscape import Cross, correct, failed
from support.runs import make_hardware

from db.records import Candidate, EntryPoint, Evaluation, Lineage, Profile
from evaluators.problems import load_problem
from islands.dialogues import Brief, Dialogues, DialogueSettings, DialoguesState
from islands.grid import Occupant
from islands.island import Island
from islands.llm.exchange import Completion, Failure, FailureKind
from islands.seed import Seed

PROBLEM = load_problem("softmax")
SEED = PROBLEM.seeds[0]
BRIEF = Brief(problem=PROBLEM, hardware=make_hardware(), triton_version="3.6.0")


def said(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(
        text=text, model="openai/x", finish_reason=finish_reason, n_tokens_in=1, n_tokens_out=1, cost_usd=0, seconds=0
    )


def edit(old: str, new: str) -> str:
    """An answer that replaces the one line of the seed that holds `old`."""
    (line,) = [line for line in SEED.split("\n") if old in line]
    return f"<<<<<<< SEARCH\n{line}\n=======\n{line.replace(old, new)}\n>>>>>>> REPLACE\n"


def elite(source: str = SEED, latency_us: float = 100.0) -> Occupant:
    candidate = Candidate(
        candidate_id="r-0-000000",
        run_id="r",
        problem_id=PROBLEM.problem_id,
        island=0,
        source=source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )
    return Occupant(candidate, correct(candidate, latency_us))


@pytest.fixture
def dialogues() -> Dialogues:
    return Dialogues(BRIEF, DialogueSettings(n_repairs=2, operators=("mutate",)), island_id=3)


def begin(dialogues: Dialogues) -> str:
    (question,) = dialogues.ask(1, [elite()], random.Random(0))
    return question.dialogue_id


def test_a_question_shows_the_problem_the_gpu_and_the_parent(dialogues: Dialogues) -> None:
    (question,) = dialogues.ask(1, [elite()], random.Random(0))
    text = "\n".join(message.content for message in question.request.messages)
    assert SEED.strip() in text and "torch.softmax" in text and "NVIDIA H200" in text and "100.00 us" in text
    assert question.request.operator == "mutate" and question.request.island == 3


def test_an_edit_becomes_a_source_with_what_the_model_claims(dialogues: Dialogues) -> None:
    dialogue_id = begin(dialogues)
    answer = "TECHNIQUE: num_warps\nCHANGE: eight warps\nEXPECT: 12%\n\n" + edit("num_warps=4", "num_warps=8")
    written = dialogues.answered(dialogue_id, said(answer))
    assert written is not None and written.source == SEED.replace("num_warps=4", "num_warps=8").rstrip("\n") + "\n"
    lineage = written.lineage
    assert (lineage.operator, lineage.technique, lineage.detail) == ("mutate", "num_warps", "eight warps")
    assert (
        lineage.model == "openai/x"
        and lineage.prompt_hash
        and lineage.predicted_octaves == pytest.approx(0.184, abs=0.01)
    )
    assert lineage.parents == (elite().program_id,)


def test_an_answer_without_a_program_goes_back_once(dialogues: Dialogues) -> None:
    dialogue_id = begin(dialogues)
    assert dialogues.answered(dialogue_id, said("I would use more warps.")) is None
    (again,) = dialogues.ask(1, [], random.Random(0))
    assert again.dialogue_id == dialogue_id and "could not be used" in again.request.messages[-1].content
    assert [m.role for m in again.request.messages] == ["system", "user", "assistant", "user"]
    assert dialogues.answered(dialogue_id, said("As I said.")) is None
    assert not dialogues.is_waiting


def test_a_refused_program_is_repaired_until_no_try_is_left(dialogues: Dialogues) -> None:
    dialogue_id = begin(dialogues)
    for tries_left, warps in ((2, 8), (1, 16), (0, 32)):
        whole = SEED.replace("num_warps=4", f"num_warps={warps}")
        written = dialogues.answered(dialogue_id, said(f"```python\n{whole}\n```"))
        assert written is not None and f"num_warps={warps}" in written.source
        candidate = elite(written.source).candidate.model_copy(update={"candidate_id": f"r-0-{warps:06d}"})
        dialogues.admitted(dialogue_id, candidate.candidate_id)
        dialogues.told(candidate.candidate_id, failed(candidate, "out of registers"))
        questions = dialogues.ask(1, [], random.Random(0))
        assert len(questions) == (1 if tries_left else 0)
        assert all("out of registers" in q.request.messages[-1].content for q in questions)
    assert not dialogues.is_waiting


def test_a_correct_program_and_a_model_that_fails_end_a_dialogue(dialogues: Dialogues) -> None:
    dialogue_id = begin(dialogues)
    written = dialogues.answered(dialogue_id, said(edit("num_warps=4", "num_warps=8")))
    assert written is not None
    dialogues.admitted(dialogue_id, "r-0-000001")
    candidate = elite(written.source).candidate.model_copy(update={"candidate_id": "r-0-000001"})
    dialogues.told("r-0-000001", correct(candidate, 50.0))
    assert not dialogues.is_waiting
    failure = Failure(kind=FailureKind.TIMEOUT, reason="no answer within 900 s", is_final=False)
    assert dialogues.answered(begin(dialogues), failure) is None
    assert not dialogues.is_waiting


def test_a_repair_that_meets_an_outage_is_asked_once_more(dialogues: Dialogues) -> None:
    dialogue_id = begin(dialogues)
    outage = Failure(kind=FailureKind.RATE_LIMIT, reason="429, four times in a row", is_final=False)
    for warps in (8, 16):  # every answer earns it another wait
        written = dialogues.answered(dialogue_id, said(whole(warps)))
        assert written is not None
        candidate = elite(written.source).candidate.model_copy(update={"candidate_id": f"r-0-{warps:06d}"})
        dialogues.admitted(dialogue_id, candidate.candidate_id)
        dialogues.told(candidate.candidate_id, failed(candidate, "out of registers"))
        (repair,) = dialogues.ask(1, [], random.Random(0))
        assert dialogues.answered(dialogue_id, outage) is None
        assert dialogues.ask(1, [], random.Random(0)) == [repair], "the same question, word for word"
    assert dialogues.answered(dialogue_id, outage) is None
    assert not dialogues.is_waiting, "once"


@pytest.mark.parametrize(
    ("kind", "is_final"), [(FailureKind.BAD_REQUEST, False), (FailureKind.EMPTY, False), (FailureKind.RATE_LIMIT, True)]
)
def test_a_failure_that_does_not_pass_ends_a_conversation(
    dialogues: Dialogues, kind: FailureKind, is_final: bool
) -> None:
    dialogue_id = begin(dialogues)
    dialogues.answered(dialogue_id, said("I would use more warps."))
    dialogues.ask(1, [], random.Random(0))
    dialogues.answered(dialogue_id, Failure(kind=kind, reason="no", is_final=is_final))
    assert not dialogues.is_waiting


def test_no_more_questions_than_may_be_in_flight() -> None:
    dialogues = Dialogues(BRIEF, DialogueSettings(in_flight=3, operators=("mutate",)), island_id=0)
    assert len(dialogues.ask(8, [elite()], random.Random(0))) == 3
    assert dialogues.ask(8, [elite()], random.Random(0)) == []
    assert Dialogues(BRIEF, DialogueSettings(), island_id=0).ask(1, [], random.Random(0)) == []


def test_conversations_go_on_in_another_process(dialogues: Dialogues) -> None:
    (asked,) = dialogues.ask(1, [elite()], random.Random(0))
    judged = begin(dialogues)
    written = dialogues.answered(judged, said(edit("num_warps=4", "num_warps=8")))
    assert written is not None
    dialogues.admitted(judged, "r-0-000001")

    other = Dialogues(BRIEF, DialogueSettings(n_repairs=2, operators=("mutate",)), island_id=3)
    other.restore(DialoguesState.model_validate_json(dialogues.dump().model_dump_json()))
    assert other.dump().model_copy(update={"dialogues": ()}) == dialogues.dump().model_copy(update={"dialogues": ()})
    (again,) = other.ask(2, [], random.Random(1))
    assert again == asked
    assert other.answered(asked.dialogue_id, said(edit("num_warps=4", "num_warps=16"))) is not None
    candidate = elite(written.source).candidate.model_copy(update={"candidate_id": "r-0-000001"})
    other.told("r-0-000001", failed(candidate, "out of registers"))
    (repair,) = other.ask(1, [], random.Random(1))
    assert repair.dialogue_id == judged and repair.request.operator == "repair"
    fresh = other.ask(1, [elite()], random.Random(1))
    assert fresh[0].dialogue_id not in (asked.dialogue_id, judged)


def whole(warps: int) -> str:
    """An answer that is the seed with another number of warps."""
    return f"```python\n{SEED.replace('num_warps=4', f'num_warps={warps}')}```\n"


def island_that_talks() -> Island:
    island = make_island()
    island.talk(BRIEF, DialogueSettings(operators=("mutate",)))
    (seed,) = island.seed([Seed(source=SEED, origin="softmax")])
    island.tell([correct(seed, 100.0)])
    return island


def test_an_island_admits_what_a_model_wrote_and_judges_no_program_twice() -> None:
    island = island_that_talks()
    first, second = island.questions(2)
    answer = said(edit("num_warps=4", "num_warps=8"))
    candidate = island.answered(first.dialogue_id, answer)
    assert candidate is not None and candidate.lineage.operator == "mutate" and candidate.island == island.island_id
    assert island.answered(second.dialogue_id, answer) is None
    island.tell([correct(candidate, 50.0)])
    assert island.elites()[0].candidate == candidate
    assert island.summary().techniques["mutate"].improved == 1


def test_a_crossover_of_a_model_is_not_that_of_the_structural_operator() -> None:
    def crossing() -> Island:
        island = make_island(operators=[Cross("crossover")])
        island.talk(BRIEF, DialogueSettings(operators=("crossover",)))
        return island

    island = crossing()
    seeds = island.seed([Seed(source=source, origin="softmax") for source in (SEED, whole(8).split("\n", 1)[1][:-4])])
    judged = [correct(seed, 100.0 + 20 * k) for k, seed in enumerate(seeds)]
    island.tell(judged)
    (question,) = island.questions(1)
    candidate = island.answered(question.dialogue_id, said(whole(16)))
    assert candidate is not None and candidate.lineage.operator == "crossover"
    island.tell([correct(candidate, 10.0)])
    again = crossing()
    pairs = [*zip(seeds, judged, strict=True), (candidate, correct(candidate, 10.0))]
    again.restore([Evaluation(candidate=one, verdict=verdict) for one, verdict in pairs])
    for one in (island, again):
        knowledge = one.summary().knowledge
        assert knowledge is not None and knowledge.n_attempts == 0
        assert one.dialogues is not None and len(one.dialogues.recent_attempts) == 1


def test_models_do_not_change_what_structural_operators_draw() -> None:
    silent, talking = make_island(), make_island()
    talking.talk(BRIEF, DialogueSettings())
    drawn = []
    for island in (silent, talking):
        (seed,) = island.seed([LANDSCAPE_SEED])
        island.tell([correct(seed, 100.0)])
        island.questions(2)
        drawn.append([candidate.source for candidate in island.ask(4)])
    assert drawn[0] == drawn[1] and len(drawn[0]) == 4


def test_a_source_that_was_never_judged_is_judged_by_the_next_sitting() -> None:
    island = island_that_talks()
    (question,) = island.questions(1)
    candidate = island.answered(question.dialogue_id, said(whole(16)))
    assert candidate is not None and island.dialogues is not None
    state = island.dialogues.dump()

    again = make_island()
    again.talk(BRIEF, DialogueSettings(operators=("mutate",)))
    assert again.dialogues is not None
    again.dialogues.restore(state)
    again.restore([elite().as_evaluation()])
    (same,) = again.ask(1)
    assert (same.source, same.lineage) == (candidate.source, candidate.lineage)
    again.tell([failed(same, "out of registers")])
    (repair,) = again.questions(1)
    assert repair.dialogue_id == question.dialogue_id and repair.request.operator == "repair"


def test_a_verdict_that_came_before_the_next_sitting_is_told_to_its_conversation() -> None:
    island = island_that_talks()
    (question,) = island.questions(1)
    candidate = island.answered(question.dialogue_id, said(whole(16)))
    assert candidate is not None and island.dialogues is not None
    again = make_island()
    again.talk(BRIEF, DialogueSettings(operators=("mutate",)))
    assert again.dialogues is not None
    again.dialogues.restore(island.dialogues.dump())
    again.restore([elite().as_evaluation(), Occupant(candidate, correct(candidate, 50.0)).as_evaluation()])
    assert not again.dialogues.is_waiting
    (attempt,) = again.dialogues.recent_attempts
    assert attempt.octaves == pytest.approx(1.0)


@pytest.mark.parametrize("strategy", ["map-elites", "beam"])
def test_a_first_program_of_a_model_is_a_founder_and_outlives_a_resume(strategy: str) -> None:
    problem = PROBLEM.model_copy(update={"seeds": ()})
    first, again = make_island(strategy=strategy), make_island(strategy=strategy)
    for island in (first, again):
        island.talk(BRIEF.model_copy(update={"problem": problem}), DialogueSettings())
    (question,) = first.questions(1)
    candidate = first.answered(question.dialogue_id, said(whole(8)))
    assert candidate is not None and candidate.lineage.operator == "synthesize"
    judged = correct(candidate, 100.0)
    first.tell([judged])
    again.restore([Evaluation(candidate=candidate, verdict=judged)])
    for island in (first, again):
        assert [founder.candidate for founder in island._founders] == [candidate]
        assert island.questions(1)[0].request.operator in ("mutate", "plan")


def test_what_counters_said_later_is_shown_to_whoever_carries_a_plan_out() -> None:
    island = make_island()
    island.talk(BRIEF, DialogueSettings(operators=("plan",)))
    (seed,) = island.seed([Seed(source=SEED, origin="softmax")])
    verdict = correct(seed, 100.0)
    island.tell([verdict])
    (question,) = island.questions(1)
    plan = '[{"construct": "launch", "change": "8 warps", "why": "waits", "effect_pct": 5}]'
    assert island.answered(question.dialogue_id, said(plan)) is None
    read = Profile(source="ncu", memory_sol_pct=71.0, dram_pct=71.0)
    island.reprofile([verdict.model_copy(update={"profile": read, "candidate_id": "r-9-000009"})])
    (execute,) = island.questions(1)
    assert execute.request.operator == "execute"
    assert "read by Nsight Compute" in execute.request.messages[-1].content

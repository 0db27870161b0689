"""What is learnt on some problems helps on others: searches of made-up landscapes, through a real archive."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from support import landscape
from support.colony import PROBLEM, RUN, SEED, best_us, make_island, search
from support.landscape import Landscape

from db.archive import ProgramArchive
from db.records import EntryPoint, Evaluation
from islands.island import Island, island_rng
from islands.knowledge import KnowledgeBase, PriorKnowledge, Standing
from islands.settings import IslandSettings
from islands.strategies import make_strategy

N = 60
TAUGHT = range(40, 52)
ASKED = range(40)


def island(prior: PriorKnowledge | None = None, rng_seed: int = 0, **settings: object) -> Island:
    return Island(
        island_id=0,
        run_id=RUN,
        problem_id=PROBLEM,
        entry_point=EntryPoint.MODEL,
        operators=landscape.operators(),
        strategy=make_strategy("map-elites"),
        rng=island_rng(rng_seed, 0),
        settings=IslandSettings.model_validate(settings),
        prior=prior,
    )


def searched(instance: int, prior: PriorKnowledge | None = None, **settings: object) -> list[Evaluation]:
    land = Landscape(instance, noise=0.004, explains=True)
    return search(island(prior, rng_seed=instance, **settings), land, N)


def as_run(evaluations: Sequence[Evaluation], run_id: str) -> list[Evaluation]:
    """The same evaluations under the name of another run."""
    renamed = []
    for e in evaluations:
        ids = {"run_id": run_id, "candidate_id": f"{run_id}-{e.candidate.candidate_id}"}
        candidate, verdict = e.candidate.model_copy(update=ids), e.verdict.model_copy(update=ids)
        renamed.append(e.model_copy(update={"candidate": candidate, "verdict": verdict}))
    return renamed


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> PriorKnowledge:
    """What eight searches of other landscapes left in an archive."""
    with ProgramArchive.open(tmp_path_factory.mktemp("learnt") / "a.duckdb") as archive:
        for instance in TAUGHT:
            archive.insert(as_run(searched(instance), f"r{instance}"))
        evidence = archive.knowledge()
    return PriorKnowledge(tuple(evidence), max(one.last_at_s for one in evidence))


def octaves_won(instance: int, evaluations: Sequence[Evaluation], n: int) -> float:
    seed_us = Landscape(instance).latency_us(landscape.SEED_SOURCE)
    assert seed_us is not None
    return math.log2(seed_us / best_us(evaluations[:n]))


@cache
def alone(instance: int) -> list[Evaluation]:
    return searched(instance)


def test_knowledge_of_other_problems_saves_evaluations(learnt: PriorKnowledge) -> None:
    """With it, 20 candidates reach what 30 reach without it, over forty landscapes that it has never seen."""
    informed = {i: searched(i, learnt) for i in ASKED}

    def mean(found: Callable[[int], list[Evaluation]], n: int) -> float:
        return statistics.mean(octaves_won(i, found(i), n) for i in ASKED)

    assert mean(informed.__getitem__, 20) > mean(alone, 20) + 0.15
    assert mean(informed.__getitem__, 20) > mean(alone, 30)


def test_candidates_carry_the_state_and_the_prediction(learnt: PriorKnowledge) -> None:
    for e in searched(0, learnt)[1:]:
        assert e.candidate.lineage.state.endswith("/sm_90")
        assert 0 < (e.candidate.lineage.predicted_octaves or 0) < 2


def test_informed_predictions_are_better(learnt: PriorKnowledge) -> None:
    """Of the same attempts, which somebody else chose."""

    def mean_square_error(prior: PriorKnowledge | None) -> float:
        errors = []
        for instance in ASKED:
            operators = {operator.name: operator for operator in landscape.operators()}
            knowledge = KnowledgeBase(operators, IslandSettings(), prior)
            known = {e.candidate.program_id: Standing.of(e.verdict) for e in alone(instance)}
            for e in alone(instance)[1:]:
                before, after = known[e.candidate.lineage.parents[0]], e.verdict.latency
                gain = max(0.0, math.log2((before.latency_us or 0) / after.device_us)) if after else 0.0
                errors.append((knowledge.predict(before.situation, e.candidate.lineage.technique) - gain) ** 2)
        return statistics.mean(errors)

    assert mean_square_error(learnt) < 0.95 * mean_square_error(None)


def test_the_same_knowledge_and_generator_search_the_same(learnt: PriorKnowledge) -> None:
    one, other = (searched(3, learnt) for _ in range(2))
    assert [e.candidate for e in one] == [e.candidate for e in other]
    assert [e.candidate.program_id for e in one] != [e.candidate.program_id for e in alone(3)]


def test_a_resumed_island_knows_what_it_knew(learnt: PriorKnowledge) -> None:
    before = island(learnt)
    judged = search(before, Landscape(0, noise=0.004, explains=True), 40)
    restored = island(learnt)
    restored.restore(judged)
    assert restored.summary().knowledge == before.summary().knowledge
    assert restored.summary().knowledge is not None


def test_a_resumed_island_knows_what_children_of_migrants_gained() -> None:
    abroad = search(make_island(1), Landscape(0), 20)
    here = make_island(0)
    here.immigrate([e for e in abroad if e.verdict.is_correct][:3])
    judged = []
    for _ in range(12):
        (asked,) = here.ask(1)
        verdict = Landscape(0).judge(asked)
        here.tell([verdict])
        judged.append(Evaluation(candidate=asked, verdict=verdict))
    restored = make_island(0)
    restored.restore(judged, [e for e in abroad if e.verdict.is_correct])
    assert restored.summary().knowledge == here.summary().knowledge
    assert restored.summary().knowledge.n_attempts == 12  # type: ignore[union-attr]


@pytest.mark.parametrize("choice", ["bandit", "random"])
def test_other_choices_keep_no_knowledge(choice: str, learnt: PriorKnowledge) -> None:
    judged = searched(0, learnt, operator_choice=choice)
    assert {e.candidate.lineage.state for e in judged} == {""}
    assert {e.candidate.lineage.predicted_octaves for e in judged} == {None}
    started = island(learnt, operator_choice=choice)
    assert started.summary().knowledge is None


def test_random_choices_are_even_and_a_bandit_learns() -> None:
    def n_turns_of_what_pays(choice: str) -> int:
        started = island(operator_choice=choice, in_flight=4, bandit_exploration=0.15)
        (seed,) = started.seed([SEED])
        started.tell([landscape.correct(seed, 1000.0)])
        best, n = 1000.0, 0
        for _ in range(30):
            for asked in started.ask(2):
                pays = asked.lineage.technique == "turn_block"
                n += pays
                best = best * 0.9 if pays else best
                started.tell([landscape.correct(asked, best if pays else best * 1.5)])
        return n

    assert n_turns_of_what_pays("knowledge") > n_turns_of_what_pays("random")

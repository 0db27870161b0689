"""Advisers: the best of several proposals by their moves, and what is declined."""

from __future__ import annotations

import random
from collections import Counter

from support.colony import occupant
from support.landscape import SEED_SOURCE, Turn

from db.knowledge import TechniqueEvidence
from db.records import LatencyKind
from islands.grid import AddStatus
from islands.knowledge import PriorKnowledge, Standing
from islands.operators.base import Proposal
from islands.settings import IslandSettings
from islands.strategies.advisers import Adviser, make_adviser
from islands.strategies.base import Draw, Expectation, Trial

TURN = Turn("BLOCK", [2**k for k in range(7, 14)])  # the seed has 1024
PARENT = occupant(100.0, source=SEED_SOURCE)
DRAW = Draw(TURN, (PARENT,))


def evidence(move: str, n_improved: int) -> TechniqueEvidence:
    return TechniqueEvidence(
        technique=TURN.name,
        move=move,
        latency_kind=LatencyKind.MEASURED,
        hardware_id="nvidia-h200",
        n_tried=40,
        n_passed=40,
        n_kept=n_improved,
        n_improved=n_improved,
        gained_octaves=0.5 * n_improved,
    )


def adviser(*known: TechniqueEvidence, choice: str = "knowledge") -> Adviser:
    settings = IslandSettings.model_validate({"operator_choice": choice})
    return make_adviser({TURN.name: TURN}, settings, PriorKnowledge(known))


def details(advising: Adviser, n: int = 200) -> Counter[str]:
    rng = random.Random(0)
    parents = [PARENT.as_parent()]
    found = (advising.best_of(DRAW, lambda: TURN.propose(parents, rng), lambda _: True, rng) for _ in range(n))
    return Counter(proposal.detail for proposal in found if proposal)


def test_moves_that_won_elsewhere_are_preferred_and_others_still_made() -> None:
    found = details(adviser(evidence("tile x4", 40), evidence("tile x1/2", 0), evidence("tile x2", 0)))
    assert found["BLOCK 1024 -> 4096"] > 200 * 0.22
    assert 0 < found["BLOCK 1024 -> 512"] < 200 / 6
    assert set(found) == {f"BLOCK 1024 -> {2**k}" for k in range(7, 14) if k != 10}


def test_without_any_known_move_the_first_new_proposal_is_taken() -> None:
    found = details(adviser())
    assert max(found.values()) < 200 * 0.3


def test_proposals_that_are_known_are_drawn_again() -> None:
    rng = random.Random(0)
    made: list[Proposal] = []

    def propose() -> Proposal | None:
        proposal = TURN.propose([PARENT.as_parent()], rng)
        made.extend([proposal] if proposal else [])
        return proposal

    best = adviser().best_of(DRAW, propose, lambda proposal: len(made) == 2, rng)
    assert best is made[1] and len(made) == 2
    nothing_new = adviser().best_of(DRAW, propose, lambda _: False, rng)
    assert nothing_new is made[2] and len(made) == 4
    assert adviser().best_of(DRAW, lambda: None, lambda _: True, rng) is None


def told(advising: Adviser, detail: str, child_us: float | None, octaves: float | None = None) -> None:
    child = None if child_us is None else occupant(child_us)
    before, after = Standing.of(PARENT.verdict), Standing.of(child.verdict) if child else Standing(gate="static")
    names = (TURN.name, (PARENT.program_id,))
    advising.told(Trial("c", *names, 100.0, child, AddStatus.NEW, detail, Expectation("", octaves), before, after))


def test_circles_are_declined_until_something_else_was_judged() -> None:
    advising = adviser()
    up, down = (Proposal("", TURN.name, f"BLOCK 1024 -> {n}", ()) for n in (2048, 512))
    for _ in range(6):
        assert advising.accepts(DRAW, up)
        told(advising, up.detail, 90.0)
    assert not advising.accepts(DRAW, up) and advising.accepts(DRAW, down)
    told(advising, down.detail, 110.0)
    assert not advising.accepts(DRAW, up) and not advising.accepts(DRAW, down)


def test_what_came_of_an_attempt_is_explained() -> None:
    advising = adviser()
    told(advising, "BLOCK 1024 -> 2048", 50.0, 1.0)
    told(advising, "BLOCK 1024 -> 2048", None, 1.0)
    known = advising.summary()
    assert known is not None and known.n_attempts == 2 and known.mean_error_octaves == 0.5
    causes = [attempt.cause for attempt in advising._knowledge.recent]  # type: ignore[attr-defined]
    assert causes == ["as predicted", "failed: gate static"]


def test_a_trial_without_a_parent_teaches_nothing_but_is_no_longer_under_way() -> None:
    advising = adviser()
    advising.asked(TURN.name)
    advising.told(Trial("c", TURN.name, ("unknown",), None, occupant(50.0), AddStatus.NEW))
    known = advising.summary()
    assert known is not None and known.n_attempts == 0
    assert advising._knowledge._n_pending[TURN.name] == 0  # type: ignore[attr-defined]


def test_bandits_are_advisers_without_knowledge() -> None:
    for choice in ("bandit", "random"):
        advising = adviser(choice=choice)
        assert advising.summary() is None
        assert advising.expects(DRAW) == Expectation()
        assert advising.choose(PARENT, [TURN.name], random.Random(0)) == TURN.name
        advising.asked(TURN.name)
        told(advising, "BLOCK 1024 -> 2048", 50.0)

"""The knowledge base: it chooses what pays, avoids what fails, does not go in circles, and always explores a little."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from attempts import LOST, MATMUL, ROW, TECHNIQUES, WON, attempt, base, evidence, situation

from islands.knowledge import Attempt, KnowledgeBase


def shares(knowledge: KnowledgeBase, state: str = ROW, n: int = 600, previous: str = "") -> dict[str, float]:
    """How often each technique is chosen."""
    rng = random.Random(0)
    chosen = Counter(knowledge.choose(situation(state, previous), TECHNIQUES, rng) for _ in range(n))
    return {name: chosen[name] / n for name in TECHNIQUES}


def test_nothing_known_is_nearly_even() -> None:
    assert all(0.1 < share < 0.24 for share in shares(base()).values())


def test_what_pays_in_a_state_is_chosen_there() -> None:
    knowledge = base(evidence("turn_warps", state=ROW), evidence("turn_block", state=MATMUL))
    assert shares(knowledge, ROW)["turn_warps"] > 0.4
    assert shares(knowledge, MATMUL)["turn_block"] > 0.4
    assert shares(knowledge, ROW)["turn_block"] < shares(knowledge, ROW)["turn_warps"]


def test_what_it_sees_in_this_run_counts_too() -> None:
    knowledge = base()
    shares(knowledge)  # what was thought before is thought over
    for _ in range(6):
        knowledge.told(attempt("turn_rows", WON))
        knowledge.told(attempt("turn_cache", LOST))
        knowledge.told(attempt("turn_block", 0.0))
    found = shares(knowledge)
    assert found["turn_rows"] > 0.4 > 0.1 > found["turn_cache"]


def test_states_and_techniques_that_nobody_announced_are_met() -> None:
    knowledge = base()
    knowledge.told(attempt("of_a_model", WON, state="tensor_cores/-/new_stall/attention/sm_100"))
    assert knowledge.summary().n_states == 1
    new = knowledge.predict(situation("tensor_cores/-/new_stall/attention/sm_100"), "of_a_model")
    assert new > knowledge.predict(situation(ROW), "of_a_model") > 0


def test_dear_techniques_must_earn_more() -> None:
    from support.landscape import Turn

    from islands.settings import IslandSettings

    operators = {"dear": Turn("BLOCK", [1], cost=1e6), "cheap": Turn("WARPS", [1])}
    knowledge = KnowledgeBase(operators, IslandSettings(bandit_exploration=0.0))
    rng = random.Random(0)
    assert {knowledge.choose(situation(), ["dear", "cheap"], rng) for _ in range(50)} == {"cheap"}


def test_what_is_under_way_is_not_chosen_again_and_again() -> None:
    knowledge = base()
    before = shares(knowledge)["turn_warps"]
    for _ in range(8):
        knowledge.asked("turn_warps")
    during = shares(knowledge)["turn_warps"]
    assert during < 0.7 * before
    for _ in range(8):
        knowledge.lost("turn_warps")
    assert shares(knowledge)["turn_warps"] == before


def test_a_share_of_the_calls_is_spread_evenly() -> None:
    known = [evidence("turn_warps", n_tried=1000, n_improved=1000)]
    known += [evidence(name, n_tried=1000, n_improved=0) for name in TECHNIQUES[1:]]
    exploring = shares(base(*known, bandit_exploration=0.3), n=2000)
    assert all(0.02 < exploring[name] < 0.1 for name in TECHNIQUES[1:])
    assert exploring["turn_warps"] > 0.6
    assert shares(base(*known, bandit_exploration=0.0))["turn_warps"] > 0.95


# ---------------------------------------------------------------------------------------------------------------- AVOID


def flagged(n_kept: int, n_tried: int = 10, **more: object) -> KnowledgeBase:
    bad = evidence("turn_cache", n_tried=n_tried, n_improved=0, n_kept=n_kept, n_passed=n_tried, **more)
    return base(bad, *(evidence(name) for name in TECHNIQUES[:3]))


def test_a_technique_that_rarely_works_is_flagged_for_that_kind_of_kernel() -> None:
    assert flagged(2).avoids("turn_cache", ROW) is False  # nobody has asked it yet for this GPU
    knowledge = flagged(2)
    shares(knowledge, n=1)
    assert knowledge.avoids("turn_cache", ROW) and not knowledge.avoids("turn_cache", MATMUL)
    assert not knowledge.avoids("turn_warps", ROW)
    assert knowledge.summary().avoided == ("row/turn_cache",)


@pytest.mark.parametrize(
    ("n_tried", "n_kept", "is_flagged"), [(4, 0, False), (5, 0, True), (10, 3, False), (10, 2, True)]
)
def test_three_tries_and_under_a_third_of_successes(n_tried: int, n_kept: int, is_flagged: bool) -> None:
    """Tries of earlier runs count 0.7, so that five of them are three and four are not."""
    knowledge = flagged(n_kept, n_tried)
    shares(knowledge, n=1)
    assert knowledge.avoids("turn_cache", ROW) is is_flagged


def test_three_failures_of_this_run_flag_a_technique() -> None:
    knowledge = base(*(evidence(name) for name in TECHNIQUES[:3]))
    for k in range(3):
        assert not knowledge.avoids("turn_cache", ROW), k
        knowledge.told(attempt("turn_cache", None))
    assert knowledge.avoids("turn_cache", ROW)
    for _ in range(2):
        knowledge.told(attempt("turn_cache", 0.0))
    assert not knowledge.avoids("turn_cache", ROW)  # two of five


def test_flagged_techniques_get_the_floor_alone() -> None:
    """A harmless technique that gains as little is still drawn now and then."""
    known = [evidence(name, n_improved=1) for name in TECHNIQUES[:3]]
    bad, harmless = (evidence("turn_cache", n_tried=5, n_improved=0, n_kept=n) for n in (0, 5))
    assert shares(base(bad, *known, bandit_exploration=0.0), n=3000)["turn_cache"] == 0
    assert shares(base(harmless, *known, bandit_exploration=0.0), n=3000)["turn_cache"] > 0
    assert 0.01 < shares(base(bad, *known, bandit_exploration=0.15), n=3000)["turn_cache"] < 0.05


def test_what_mostly_loses_but_pays_most_is_not_avoided() -> None:
    risky = evidence("turn_cache", n_tried=20, n_improved=4, n_kept=4, n_passed=20, gained_octaves=8.0)
    knowledge = base(risky, *(evidence(name, n_improved=0) for name in TECHNIQUES[:3]))
    shares(knowledge, n=1)
    assert not knowledge.avoids("turn_cache", ROW)


def test_where_everything_is_flagged_something_is_chosen() -> None:
    knowledge = base(bandit_exploration=0.0)
    for name in TECHNIQUES:
        for _ in range(4):
            knowledge.told(attempt(name, None))
    assert sum(shares(knowledge, n=20).values()) == pytest.approx(1)


# ------------------------------------------------------------------------------------------------- circles, predictions


def test_it_does_not_go_in_circles() -> None:
    knowledge = base()
    for _ in range(3):
        knowledge.told(attempt("turn_warps", WON, detail="num_warps of k 4 -> 8"))
        knowledge.told(attempt("turn_block", WON, detail="BLOCK of k 64 -> 128"))
    assert knowledge.excludes("turn_warps up") and not knowledge.excludes("turn_warps down")
    assert knowledge.summary().excluded == ("turn_block up", "turn_warps up")
    found = shares(knowledge)
    assert found["turn_warps"] == found["turn_block"] == 0
    rng = random.Random(0)
    assert knowledge.choose(situation(), ["turn_warps"], rng) == "turn_warps"  # there is nothing else
    knowledge.told(attempt("turn_rows", LOST, detail="ROWS 1 -> 2"))
    assert not knowledge.excludes("turn_warps up")
    assert shares(knowledge)["turn_warps"] > 0.2


def test_predictions_get_better_with_evidence() -> None:
    """Two techniques with fixed gains: the mean error over the second half is a fraction of that over the first."""
    knowledge, rng = base(), random.Random(1)
    gains = {"turn_warps": 0.4, "turn_block": 0.0, "turn_rows": 0.1, "turn_cache": -0.3}
    errors = []
    for k in range(80):
        technique = sorted(gains)[k % 4]
        octaves = gains[technique] + rng.gauss(0, 0.01)
        predicted = knowledge.predict(situation(), technique)
        errors.append(abs(max(octaves, 0) - predicted))
        knowledge.told(attempt(technique, octaves, predicted=predicted))
    assert sum(errors[60:]) < 0.3 * sum(errors[:20])
    told = knowledge.summary()
    assert told.n_predicted == told.n_attempts == 80
    assert told.mean_error_octaves == pytest.approx(sum(errors) / 80, rel=0.2)


def test_attempts_are_remembered_with_their_causes() -> None:
    knowledge = base()
    knowledge.told(attempt(octaves=WON, predicted=0.1, cause="less traffic"))
    (last,) = knowledge.recent
    assert isinstance(last, Attempt) and last.cause == "less traffic"
    assert [held.cause for held in knowledge.memory.held] == ["less traffic"]
    assert knowledge.summary().n_remembered == 1


def test_a_move_that_won_elsewhere_is_worth_more() -> None:
    known = [evidence(move="num_warps 8", n_improved=10), evidence(move="num_warps 1", n_improved=0)]
    knowledge = base(*known)
    assert knowledge.knows_moves(situation(), "turn_warps")
    rng = random.Random(0)

    def worth(move: str) -> float:
        return sum(knowledge.weigh(situation(), "turn_warps", move, rng) for _ in range(100))

    assert worth("num_warps 8") > 1.2 * worth("num_warps 1")
    knowledge.told(attempt(octaves=-1.0, detail="num_warps of k 4 -> 8"))
    assert worth("num_warps 8") == 0  # it lost not long ago


def test_the_same_calls_give_the_same_answers() -> None:
    def answers() -> list[object]:
        knowledge, rng = base(evidence(), evidence("turn_rows", previous="turn_warps")), random.Random(3)
        said: list[object] = []
        for k in range(40):
            chosen = knowledge.choose(situation(previous="turn_warps"), TECHNIQUES, rng)
            said += [chosen, knowledge.predict(situation(), chosen)]
            knowledge.asked(chosen)
            knowledge.told(attempt(chosen, 0.1 * (k % 3 - 1), predicted=0.05))
        return [*said, knowledge.summary()]

    assert answers() == answers()


def test_choosing_is_quick() -> None:
    """0.1 ms for 35 techniques on one core of 2.1 GHz, told in between; the bound leaves room for a busy machine."""
    import time

    from support.landscape import Turn

    from islands.settings import IslandSettings

    names = [f"turn_k{n}" for n in range(35)]
    operators = {name: Turn(name[5:].upper(), [1, 2]) for name in names}
    knowledge, rng = KnowledgeBase(operators, IslandSettings()), random.Random(0)
    started = time.perf_counter()
    for _ in range(200):
        chosen = knowledge.choose(situation(previous="turn_k1"), names, rng)
        knowledge.told(attempt(chosen, 0.1))
    assert (time.perf_counter() - started) / 200 < 0.001


def test_a_program_near_the_roofline_has_little_to_gain() -> None:
    knowledge = base()
    near, usual, far, unknown = (
        knowledge.expect(situation()._replace(headroom_octaves=octaves), "turn_warps")
        for octaves in (0.08, 0.8, 1.6, None)
    )
    assert near == pytest.approx(0.1 * usual) and far == pytest.approx(2 * usual)
    assert usual == unknown == knowledge.predict(situation(), "turn_warps")

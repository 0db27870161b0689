"""The ledger: wider groups of states back up narrower ones, and what is old or far away counts less."""

from __future__ import annotations

from typing import Any

import pytest
from attempts import GPU, LOST, MATMUL, NOW_S, OTHER_ROW, ROW, SCAN, WON, attempt, evidence, prior

from db.knowledge import TechniqueEvidence
from db.records import LatencyKind
from islands.knowledge.calibration import LIMITS, Calibration
from islands.knowledge.ledger import DAY_S, N_ADVISED, PAIR_LIMITS, Ledger, advised_in
from islands.knowledge.situation import levels_of
from islands.knowledge.tally import Belief, Tally, counts_of
from islands.settings import KnowledgeSettings


def ledger(*known: TechniqueEvidence, hardware_id: str = GPU, **settings: Any) -> Ledger:
    made = Ledger({"turn_warps": 0.03}, KnowledgeSettings(**settings))
    made.open(prior(*known), hardware_id, LatencyKind.MEASURED)
    return made


def chance(made: Ledger, state: str = ROW, technique: str = "turn_warps") -> float:
    return made.belief(technique, state).chance


def test_states_have_levels() -> None:
    assert levels_of(ROW) == ("", "dram_bandwidth", "dram_bandwidth/row", ROW)
    assert levels_of("") == levels_of("nonsense") == ("",)


def test_an_operator_is_believed_until_something_is_known() -> None:
    made = ledger()
    assert made.belief("turn_warps", ROW).mean == pytest.approx(0.03)
    assert made.belief("of a model", "").mean == pytest.approx(0.03)
    assert ledger(evidence()).belief("turn_warps", "").mean > 2 * 0.03


def test_what_is_nearer_counts_more() -> None:
    """The same evidence, of the same state, the same bottleneck and kind, the same bottleneck, and anything."""
    nothing = chance(ledger())
    chances = [chance(ledger(evidence(state=state))) for state in (ROW, OTHER_ROW, SCAN, MATMUL, "")]
    assert chances[0] > chances[1] > chances[2] > chances[3] == chances[4] > nothing


def test_a_state_that_is_known_well_overrules_its_kind() -> None:
    made = ledger(evidence(state=OTHER_ROW, n_improved=10), evidence(state=ROW, n_improved=0), most_tries=1000)
    assert chance(made, OTHER_ROW) > 2 * chance(made, ROW)


def test_earlier_runs_count_less_than_this_one_and_only_so_much() -> None:
    told = ledger(fading=1.0)
    for octaves in (WON, None) * 2:
        told.enter(attempt(octaves=octaves))
    assert chance(told) > chance(ledger(evidence(n_tried=4, n_improved=2)))
    assert chance(ledger(evidence(n_tried=4, n_improved=4))) < chance(ledger(evidence(n_tried=100, n_improved=100)))
    few, many = (ledger(evidence(n_tried=n, n_improved=n)) for n in (1000, 100_000))
    assert chance(few) == pytest.approx(chance(many))  # capped
    for _ in range(40):
        many.enter(attempt(octaves=LOST))
    assert chance(many) < 0.5 * chance(few)


def test_stale_evidence_decays_by_half_lives() -> None:
    def aged(days: float) -> float:
        return chance(ledger(evidence(n_tried=4, n_improved=4, last_at_s=NOW_S - days * DAY_S), half_life_days=10))

    weights = [
        Ledger({}, KnowledgeSettings(half_life_days=10))._weight_of(
            evidence(last_at_s=NOW_S - days * DAY_S), GPU, NOW_S
        )
        for days in (0, 10, 20)
    ]
    assert weights == pytest.approx([0.7, 0.35, 0.175])
    assert aged(0) > aged(10) > aged(40) > chance(ledger())
    assert aged(0) == aged(-3)  # what is from after the start of the run is not worth more


def test_another_gpu_counts_less() -> None:
    known = evidence(n_tried=4, n_improved=4, hardware_id="nvidia-a100")
    own, other, none = (
        chance(ledger(known.model_copy(update={"hardware_id": gpu}), other_gpu_weight=weight))
        for gpu, weight in ((GPU, 0.5), ("nvidia-a100", 0.5), ("nvidia-a100", 0.0))
    )
    assert own > other > none == chance(ledger())


@pytest.mark.parametrize("n_tried", [4, 400])
def test_age_and_distance_count_however_much_was_tried(n_tried: int) -> None:
    def believed(days: float = 0.0, gpu: str = GPU) -> float:
        known = evidence(n_tried=n_tried, n_improved=n_tried, last_at_s=NOW_S - days * DAY_S, hardware_id=gpu)
        return chance(ledger(known, half_life_days=10, other_gpu_weight=0.5))

    assert believed() > believed(gpu="nvidia-a100") == pytest.approx(believed(days=10))
    assert believed(days=10) > believed(days=40) > chance(ledger())


def test_modelled_evidence_says_nothing_about_measurements() -> None:
    assert chance(ledger(evidence(latency_kind=LatencyKind.MODELLED))) == chance(ledger())


def test_older_attempts_of_a_technique_fade() -> None:
    made = ledger(fading=0.5)
    for octaves in (WON, WON, LOST, LOST, LOST):
        made.enter(attempt(octaves=octaves))
    lasting = ledger(fading=1.0)
    for octaves in (WON, WON, LOST, LOST, LOST):
        lasting.enter(attempt(octaves=octaves))
    assert chance(made) < chance(lasting)
    before = chance(made)
    made.enter(attempt("other"))  # of another technique
    assert chance(made) == before


def test_improvements_are_worth_what_they_were() -> None:
    small = ledger(evidence(gained_octaves=0.1)).belief("turn_warps", ROW)
    large = ledger(evidence(gained_octaves=5.0)).belief("turn_warps", ROW)
    assert small.chance == large.chance
    assert large.mean > 5 * small.mean


def test_what_came_before_changes_expectations_within_limits() -> None:
    prepared = [evidence(previous="tile_row", state="", n_tried=20, n_improved=18)]
    alone = [evidence(previous="exp2", state="", n_tried=20, n_improved=0)]
    made = ledger(*prepared, *alone, most_tries=1000)
    low, high = PAIR_LIMITS
    assert low <= made.pair_factor("exp2", "turn_warps") < 0.8
    assert 1.2 < made.pair_factor("tile_row", "turn_warps") <= high
    assert made.pair_factor("unknown", "turn_warps") == pytest.approx(1.0)


def test_moves_are_told_apart() -> None:
    made = ledger(evidence(move="num_warps 8", n_improved=9), evidence(move="num_warps 1", n_improved=0))
    better, worse, unknown = (made.belief("turn_warps", ROW, f"num_warps {n}").chance for n in (8, 1, 2))
    assert better > unknown > worse
    assert made.knows_moves("turn_warps", ROW) and made.knows_moves("turn_warps", MATMUL)
    assert not made.knows_moves("other", ROW) and not ledger(evidence()).knows_moves("turn_warps", ROW)


def test_the_catalogue_is_believed_a_little() -> None:
    names = advised_in(ROW)
    assert len(names) > N_ADVISED and advised_in("nonsense") == advised_in("") == ()
    name = names[0]
    assert ledger().belief(name, ROW).mean > ledger().belief(name, "").mean
    assert ledger().belief("not in it", ROW).mean == pytest.approx(ledger().belief("not in it", "").mean)


def test_advice_on_what_only_models_can_do_crowds_out_no_operator() -> None:
    *_, last = advised_in(ROW)
    made = Ledger({last: 0.03}, KnowledgeSettings())
    assert made.belief(last, ROW).mean > made.belief(last, "").mean
    assert ledger().belief(last, ROW).mean == pytest.approx(ledger().belief(last, "").mean)  # no operator there


def test_a_failure_is_a_try_and_nothing_else() -> None:
    assert counts_of(None) == (1, 0, 0, 0)
    assert counts_of(-0.5) == (1, 0, 0, 0)
    assert counts_of(-0.01) == (1, 1, 0, 0)
    assert counts_of(0.5) == (1, 1, 1, 0.5)
    assert counts_of(7.0) == (1, 1, 1, 2)


def test_a_prior_of_nothing_can_still_be_sampled() -> None:
    import random

    belief = Belief.prior(0.0, 2.0).narrowed(Tally(), None, 8.0)
    assert 0 <= belief.sample(random.Random(0)) < 1


def test_predictions_that_are_too_high_are_lowered() -> None:
    calibration = Calibration()
    assert calibration.mean_error_octaves is None and calibration.factor("exp2") == 1
    for _ in range(20):
        calibration.learn("exp2", 0.2, None)
    assert LIMITS[0] == calibration.factor("exp2") and calibration.factor("other") == 1
    assert calibration.mean_error_octaves == pytest.approx(0.2) and calibration.n_predicted == 20
    for _ in range(40):
        calibration.learn("exp2", 0.2, 0.6)
    assert calibration.factor("exp2") == LIMITS[1]


def test_predictions_that_are_right_on_average_stay() -> None:
    calibration = Calibration()
    for k in range(100):
        calibration.learn("exp2", 0.1, 0.5 if k % 5 == 0 else -0.3)
    assert calibration.factor("exp2") == pytest.approx(1.0, abs=0.25)

"""The bandit finds the model that is worth its money, and goes on after a resume with other models."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest

from db.errors import ConfigError
from islands.llm.bandit import Arm, BanditState, ModelBandit

DEAR, CHEAP, LOCAL = Arm("openai/dear", "mutate"), Arm("openai/cheap", "mutate"), Arm("ollama/local", "mutate")


def played(
    bandit: ModelBandit, arms: list[Arm], outcome: Callable[[Arm], tuple[float, float | None, float]], n: int = 300
) -> Counter[Arm]:
    """How often each arm was chosen in `n` rounds. `outcome` gives octaves, dollars and seconds."""
    rng = random.Random(0)
    chosen: Counter[Arm] = Counter()
    for _ in range(n):
        arm = bandit.choose(arms, rng)
        chosen[arm] += 1
        bandit.asked(arm)
        octaves, usd, seconds = outcome(arm)
        bandit.told(arm, octaves, cost_usd=usd, seconds=seconds)
    return chosen


def test_equal_gains_go_to_the_cheaper_model() -> None:
    chosen = played(ModelBandit(), [DEAR, CHEAP], lambda arm: (0.1, 0.5 if arm == DEAR else 0.05, 5.0))
    assert chosen[CHEAP] > 4 * chosen[DEAR]


def test_a_dear_model_that_gains_enough_is_worth_it() -> None:
    chosen = played(ModelBandit(), [DEAR, CHEAP], lambda arm: (1.0, 0.10, 5.0) if arm == DEAR else (0.0, 0.05, 5.0))
    assert chosen[DEAR] > 3 * chosen[CHEAP]


def test_with_an_unpriced_model_seconds_count_for_all() -> None:
    def outcome(arm: Arm) -> tuple[float, float | None, float]:
        return (0.1, None, 2.0) if arm == LOCAL else (0.1, 0.0001, 20.0)

    chosen = played(ModelBandit(), [CHEAP, LOCAL], outcome)
    assert chosen[LOCAL] > 4 * chosen[CHEAP]


def test_no_model_is_given_up() -> None:
    chosen = played(ModelBandit(), [DEAR, CHEAP], lambda arm: (0.0 if arm == DEAR else 1.0, 0.1, 5.0))
    assert chosen[DEAR] >= 10


def test_operators_learn_apart() -> None:
    bandit = ModelBandit()
    plan = Arm("openai/dear", "plan")
    for _ in range(30):
        bandit.told(DEAR, 0.0, cost_usd=0.1, seconds=5)
        bandit.told(plan, 1.0, cost_usd=0.1, seconds=5)
    shares = bandit.shares([DEAR, plan])
    assert shares[plan] > 0.8 and sum(shares.values()) == pytest.approx(1)


def test_a_new_operator_of_a_known_model_costs_what_the_model_costs() -> None:
    bandit = ModelBandit()
    bandit.told(DEAR, 0.1, cost_usd=1.0, seconds=5)
    bandit.told(CHEAP, 0.1, cost_usd=0.01, seconds=5)
    shares = bandit.shares([Arm("openai/dear", "fuse"), Arm("openai/cheap", "fuse")])
    assert shares[Arm("openai/cheap", "fuse")] > 0.8


def test_calls_under_way_spread_the_others() -> None:
    bandit = ModelBandit()
    before = bandit.shares([DEAR, CHEAP])[DEAR]
    for _ in range(5):
        bandit.asked(DEAR)
    assert bandit.shares([DEAR, CHEAP])[DEAR] < before == pytest.approx(0.5)


def test_weights_of_users_count() -> None:
    shares = ModelBandit(exploration=0.0).shares({DEAR: 3.0, CHEAP: 1.0})
    assert shares[DEAR] == pytest.approx(0.75)


def test_a_resumed_bandit_chooses_as_it_would_have() -> None:
    bandit, resumed = ModelBandit(), ModelBandit()
    played(bandit, [DEAR, CHEAP, LOCAL], lambda arm: (0.2, None if arm == LOCAL else 0.1, 3.0))
    resumed.restore(json.loads(bandit.dump().model_dump_json()))
    assert resumed.shares([DEAR, CHEAP, LOCAL]) == bandit.shares([DEAR, CHEAP, LOCAL])
    assert resumed.dump() == bandit.dump()


def test_models_may_come_and_go_between_sittings() -> None:
    bandit, resumed = ModelBandit(), ModelBandit()
    for _ in range(50):
        bandit.told(DEAR, 0.5, cost_usd=0.1, seconds=5)
        bandit.told(CHEAP, 0.0, cost_usd=0.1, seconds=5)
    resumed.restore(bandit.dump())
    new = Arm("gemini/new", "mutate")
    shares = resumed.shares([CHEAP, new])
    assert shares[new] > shares[CHEAP] > 0
    resumed.told(new, 0.1, cost_usd=0.1, seconds=5)
    assert resumed.shares([DEAR, CHEAP])[DEAR] > 0.8


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"earnings": [{"model": "x"}]},
        {"earnings": [], "version": 2},
        {
            "earnings": [
                {
                    **dict.fromkeys(("weight", "octaves", "usd", "seconds", "priced_weight"), -1.0),
                    "model": "x",
                    "operator": "y",
                }
            ]
        },
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state: dict[str, object]) -> None:
    bandit = ModelBandit()
    bandit.told(DEAR, 0.5, cost_usd=0.1, seconds=5)
    before = bandit.dump()
    with pytest.raises(ConfigError):
        bandit.restore(state)
    assert bandit.dump() == before and isinstance(before, BanditState)


def test_free_and_instant_models_divide_by_nothing() -> None:
    bandit = ModelBandit()
    bandit.told(DEAR, 0.0, cost_usd=0.0, seconds=0.0)
    bandit.told(LOCAL, 0.0, cost_usd=None, seconds=0.0)
    assert sum(bandit.shares([DEAR, LOCAL]).values()) == pytest.approx(1)

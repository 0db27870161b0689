"""Bandits share calls by what they earned per cost, and never stop exploring."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from islands.bandit import MAX_GAIN_OCTAVES, AdaptiveBandit, Bandit, UcbBandit, UniformBandit, gain_of

ARMS = ["a", "b", "c", "d"]


class BanditContract:
    """What every bandit owes."""

    def make(self) -> Bandit:
        raise NotImplementedError

    def test_it_chooses_what_is_allowed(self) -> None:
        bandit, rng = self.make(), random.Random(0)
        for _ in range(50):
            arm = bandit.choose(["b", "d"], rng)
            assert arm in ("b", "d")
            bandit.asked(arm)
            bandit.told(arm, 0.1)

    def test_the_same_history_and_generator_give_the_same_choices(self) -> None:
        assert self.choices(7) == self.choices(7)

    def test_every_arm_is_tried(self) -> None:
        assert set(self.choices(3)) == set(ARMS)

    def choices(self, seed: int) -> list[str]:
        bandit, rng, made = self.make(), random.Random(seed), []
        for _ in range(60):
            made.append(bandit.choose(ARMS, rng))
            bandit.asked(made[-1])
            bandit.told(made[-1], 0.5 if made[-1] == "c" else 0.0)
        return made


class TestUniformBandit(BanditContract):
    def make(self) -> Bandit:
        return UniformBandit()


class TestUcbBandit(BanditContract):
    def make(self) -> Bandit:
        return UcbBandit()

    def test_untried_arms_come_first(self) -> None:
        assert sorted(self.choices(1)[:4]) == ARMS

    def test_the_arm_that_earns_is_tried_most(self) -> None:
        assert Counter(self.choices(1)).most_common(1)[0][0] == "c"


class TestAdaptiveBandit(BanditContract):
    def make(self, **options: float) -> AdaptiveBandit:
        return AdaptiveBandit(dict.fromkeys(ARMS, 1.0), **options)

    def test_shares_sum_to_one(self) -> None:
        bandit = self.make()
        bandit.told("a", 1.0)
        assert sum(bandit.shares(ARMS).values()) == pytest.approx(1.0)

    def test_the_arm_that_earns_gets_more(self) -> None:
        bandit = self.make()
        for arm in ARMS:
            bandit.asked(arm)
            bandit.told(arm, 0.3 if arm == "c" else 0.0)
        shares = bandit.shares(ARMS)
        assert all(shares["c"] > 2 * shares[arm] for arm in "abd")

    def test_no_arm_falls_below_the_floor(self) -> None:
        bandit = self.make(exploration=0.2)
        for _ in range(200):
            bandit.told("c", 1.0)
            bandit.told("a", 0.0)
        assert min(bandit.shares(ARMS).values()) >= 0.2 / len(ARMS)

    def test_dear_arms_get_less(self) -> None:
        bandit = AdaptiveBandit({"cheap": 1.0, "dear": 10.0})
        shares = bandit.shares(["cheap", "dear"])
        assert shares["cheap"] > 3 * shares["dear"]

    def test_what_usually_pays_is_tried_first(self) -> None:
        bandit = AdaptiveBandit({"usual": 1.0, "rare": 1.0}, priors={"usual": 0.1, "rare": 0.01})
        shares = bandit.shares(["usual", "rare"])
        assert shares["usual"] > 3 * shares["rare"]

    def test_a_batch_spreads_over_the_arms(self) -> None:
        bandit = self.make()
        before = bandit.shares(ARMS)["a"]
        bandit.asked("a")
        assert bandit.shares(ARMS)["a"] < before

    def test_old_gains_fade(self) -> None:
        bandit = self.make()
        bandit.told("a", 0.5)
        for _ in range(60):
            bandit.told("b", 0.02)
        assert bandit.shares(ARMS)["a"] < bandit.shares(ARMS)["b"] * 3


@pytest.mark.parametrize(
    ("parent_us", "child_us", "gain"),
    [
        (100.0, 50.0, 1.0),
        (100.0, 100.0, 0.0),
        (100.0, 200.0, 0.0),
        (100.0, None, 0.0),
        (None, 50.0, 0.0),
        (1000.0, 1.0, MAX_GAIN_OCTAVES),
    ],
)
def test_gain_is_octaves_over_the_parent(parent_us: float | None, child_us: float | None, gain: float) -> None:
    assert gain_of(parent_us, child_us) == gain

"""Selectors: one contract, and what is particular about each policy."""

from __future__ import annotations

import random
from collections import Counter

from support.colony import elites

from islands.grid import AddStatus, Occupant
from islands.selection import CuriositySelector, EliteUniformSelector, Selector, SpeedWeightedSelector

ELITES = elites(100.0, 110.0, 200.0, 400.0, 1000.0)


class SelectorContract:
    """What every selector owes."""

    def make(self) -> Selector:
        raise NotImplementedError

    def drawn(
        self, selector: Selector, n: int = 400, seed: int = 0, among: list[Occupant] | None = None
    ) -> Counter[float]:
        rng = random.Random(seed)
        return Counter(selector.select(among or ELITES, rng).latency_us for _ in range(n))

    def test_it_draws_from_the_elites(self) -> None:
        assert set(self.drawn(self.make())) <= {elite.latency_us for elite in ELITES}

    def test_a_single_elite_is_drawn(self) -> None:
        assert self.drawn(self.make(), among=ELITES[2:3]) == {200.0: 400}

    def test_the_same_generator_draws_the_same(self) -> None:
        assert self.drawn(self.make(), seed=5) == self.drawn(self.make(), seed=5)

    def test_more_than_one_elite_is_drawn(self) -> None:
        assert len(self.drawn(self.make())) > 1

    def test_it_may_be_told_of_strangers(self) -> None:
        selector = self.make()
        selector.told(("nobody",), AddStatus.REJECTED)
        self.drawn(selector)

    def test_it_has_a_name(self) -> None:
        assert self.make().name


class TestEliteUniform(SelectorContract):
    def make(self) -> Selector:
        return EliteUniformSelector()

    def test_all_are_equally_likely(self) -> None:
        drawn = self.drawn(self.make(), n=2000)
        assert len(drawn) == len(ELITES)
        assert all(300 < n < 500 for n in drawn.values())


class TestSpeedWeighted(SelectorContract):
    def make(self) -> Selector:
        return SpeedWeightedSelector(n_fastest=2)

    def test_only_the_fastest_are_drawn(self) -> None:
        assert set(self.drawn(self.make(), n=2000)) == {100.0, 110.0}

    def test_faster_is_likelier(self) -> None:
        drawn = self.drawn(self.make(), n=2000)
        assert drawn[100.0] > 1.5 * drawn[110.0]


class TestCuriosity(SelectorContract):
    def make(self) -> Selector:
        return CuriositySelector()

    def test_parents_of_new_elites_are_likelier(self) -> None:
        selector = self.make()
        for _ in range(5):
            selector.told((ELITES[3].program_id,), AddStatus.NEW)
        assert self.drawn(selector).most_common(1)[0][0] == ELITES[3].latency_us

    def test_parents_of_failures_fade_but_do_not_vanish(self) -> None:
        selector = self.make()
        for _ in range(50):
            selector.told((ELITES[0].program_id,), AddStatus.REJECTED)
        assert 0 < self.drawn(selector, n=2000)[100.0] < 150

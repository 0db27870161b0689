"""Strategies: one contract, what is particular about each, and that searching beats sampling."""

from __future__ import annotations

import random
import statistics
from collections import Counter

import pytest
from support import landscape
from support.colony import SEED, best_us, make_island, occupant, search
from support.landscape import Landscape, Turn, correct, failed

from db.errors import ConfigError
from db.records import Evaluation
from islands.grid import AddStatus
from islands.knowledge import Standing
from islands.operators.base import Proposal
from islands.settings import IslandSettings
from islands.strategies import STRATEGIES, Beam, BestOfN, Greedy, MapElites, Strategy, make_strategy
from islands.strategies.base import Draw, Stock, Trial
from islands.strategies.beam import N_ROUNDS, PLANS_PER_ROUND, WIDTH
from islands.strategies.openings import STRIKES

LAND = Landscape(1)


class StrategyContract:
    """What every strategy owes."""

    strategy: type[Strategy]

    def judged(self, n: int = 60, rng_seed: int = 0) -> list[Evaluation]:
        return search(make_island(strategy=self.strategy.name, rng_seed=rng_seed), LAND, n)

    def test_it_is_found_by_name(self) -> None:
        assert isinstance(make_strategy(self.strategy.name), self.strategy)

    def test_it_makes_something_faster_than_the_seed(self) -> None:
        seed_us = LAND.latency_us(landscape.SEED_SOURCE)
        assert seed_us is not None
        assert best_us(self.judged()) < 0.95 * seed_us

    def test_the_same_generator_decides_the_same(self) -> None:
        one, other = self.judged(rng_seed=4), self.judged(rng_seed=4)
        assert [e.candidate for e in one] == [e.candidate for e in other]

    def test_parents_were_judged_correct_before(self) -> None:
        right: set[str] = set()
        for e in self.judged():
            assert set(e.candidate.lineage.parents) <= right
            if e.verdict.is_correct:
                right.add(e.candidate.program_id)

    def test_it_ends_where_nothing_new_is_left(self) -> None:
        operators = [Turn("WARPS", [1, 2, 4]), Turn("STAGES", [1, 2])]
        island = make_island(strategy=self.strategy.name, operators=operators)
        judged = search(island, Landscape(0), 100)
        assert 4 <= len(judged) <= 6  # of six programs; one edit away from the seed are three
        assert island.ask(8) == []
        assert island.is_exhausted

    def test_failures_alone_do_not_stop_it_early(self) -> None:
        island = make_island(strategy=self.strategy.name)
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 100.0)])
        n_asked = 0
        while asked := island.ask(4):
            n_asked += len(asked)
            island.tell([failed(c) for c in asked])
            if n_asked > 30:
                break
        assert n_asked >= WIDTH * PLANS_PER_ROUND


class TestMapElites(StrategyContract):
    strategy = MapElites

    def test_the_first_batch_spreads_over_the_techniques(self) -> None:
        island = make_island(strategy="map-elites")
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 100.0)])
        assert len({c.lineage.technique for c in island.ask(8)}) >= 6

    def test_every_small_space_is_searched_to_its_end(self) -> None:
        """Also what the memory of edits declined at first: 3 x 2 programs."""
        operators = [Turn("WARPS", [1, 2, 4]), Turn("STAGES", [1, 2])]
        for rng_seed in range(5):
            island = make_island(strategy="map-elites", operators=operators, rng_seed=rng_seed)
            judged = search(island, Landscape(0), 100)
            cells = {e.verdict.program_id for e in island.elites()}
            neighbours = {e.candidate.program_id for e in judged}
            assert cells <= neighbours
            assert len(judged) >= 5

    def test_it_crosses_parents(self) -> None:
        judged = self.judged(100)
        assert any(len(e.candidate.lineage.parents) == 2 for e in judged)

    def test_it_learns_which_techniques_pay(self) -> None:
        """One technique wins whenever it is tried, the others never: it gets far more than its share."""

        def operators() -> list[Turn]:
            return [Turn(knob, range(200)) for knob in ("BLOCK", "WARPS", "STAGES", "ROWS", "CACHE", "UNROLL")]

        island = make_island(strategy="map-elites", operators=operators(), in_flight=4)
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 1000.0)])
        best, tried = 1000.0, Counter[str]()
        for _ in range(40):
            for asked in island.ask(4):
                tried[asked.lineage.technique] += 1
                pays = asked.lineage.technique == "turn_rows"
                best = best * 0.97 if pays else best
                island.tell([correct(asked, best if pays else best * 1.5)])
        assert tried["turn_rows"] > 2.5 * tried.total() / 6

    def test_it_stays_with_the_fastest_while_they_improve_and_widens_after(self) -> None:
        island = make_island(strategy="map-elites", in_flight=1, n_exploited=1, widening=20)
        waiting, latency_us, leading = island.seed([SEED]), 1000.0, []
        for k in range(60):
            (candidate,) = waiting
            leading.append(set(candidate.lineage.parents) & {e.candidate.program_id for e in island.elites(1)} != set())
            latency_us = latency_us * 0.9 if k < 20 else 900.0
            island.tell([correct(candidate, latency_us)])
            waiting = island.ask(1)
        assert sum(leading[1:21]) > 17
        assert 5 < sum(leading[40:]) < 17

    def test_curiosity_follows_offspring_that_entered(self) -> None:
        """Children of one elite enter the grid, those of the others never do."""
        only_curiosity = {"speed_weighted": 0.0, "curiosity": 1.0, "elite_uniform": 0.0}
        island = make_island(strategy="map-elites", in_flight=1, selection=only_curiosity, widening=1)
        fertile = occupant(100.0, source=landscape.SEED_SOURCE)
        others = [
            occupant(150.0 * 1.2**k, source=landscape.SEED_SOURCE.replace("ROWS = 1", f"ROWS = {2**k}"))
            for k in range(1, 5)
        ]
        island.immigrate([o.as_evaluation() for o in (fertile, *others)])
        tried = Counter[bool]()
        for k in range(40):
            (candidate,) = island.ask(1)
            is_fertile = fertile.program_id in candidate.lineage.parents
            tried[is_fertile] += 1
            island.tell([correct(candidate, 1e4 * 1.1**k) if is_fertile else failed(candidate)])
        assert tried[True] > 15

    def test_it_declines_what_goes_in_circles_until_nothing_else_is_left(self) -> None:
        operator = Turn("BLOCK", [512, 2048])
        strategy = MapElites()
        strategy.start([operator], IslandSettings())
        parent, rng = occupant(100.0, source=landscape.SEED_SOURCE), random.Random(0)
        up = Proposal("", operator.name, "BLOCK 1024 -> 2048", (parent.program_id,))
        draw = Draw(operator, (parent,))
        for k in range(6):
            assert strategy.accepts(draw, up, rng)
            child, before = occupant(100.0 + k / 10), Standing.of(parent.verdict)
            status = AddStatus.REJECTED
            strategy.told(Trial("c", operator.name, up.parents, 100.0, child, status, up.detail, before=before))
        assert not strategy.accepts(draw, up, rng)
        assert strategy.draw(Stock([parent], [], 0), rng) is not None
        for _ in range(STRIKES):
            strategy.wasted(draw, applies=True)
        assert strategy.draw(Stock([parent], [], 0), rng) is not None  # opened again, and now everything is welcome
        assert strategy.accepts(draw, up, rng)

    def test_a_batch_shares_parents_and_single_asks_do_not_have_to(self) -> None:
        def n_leaders(batch: int, rng_seed: int) -> int:
            island = make_island(strategy="map-elites", in_flight=8, n_exploited=20, rng_seed=rng_seed)
            island.immigrate([o.as_evaluation() for o in many])
            asked = [c for _ in range(8 // batch) for c in island.ask(batch)]
            return len({c.lineage.parents[0] for c in asked})

        many = [
            occupant(100.0 * 1.1**k, source=landscape.SEED_SOURCE.replace("BLOCK = 1024", f"BLOCK = {k}"))
            for k in range(20)
        ]
        together, alone = ([n_leaders(batch, rng_seed) for rng_seed in range(8)] for batch in (8, 1))
        assert max(together) <= 3
        assert max(alone) > 3 and sum(alone) > 1.3 * sum(together)


class TestBestOfN(StrategyContract):
    strategy = BestOfN

    def test_every_candidate_is_one_edit_from_the_seed(self) -> None:
        judged = self.judged()
        seed_id = judged[0].candidate.program_id
        assert {e.candidate.lineage.parents for e in judged[1:]} == {(seed_id,)}


class TestGreedy(StrategyContract):
    strategy = Greedy

    def test_the_parent_is_the_fastest_program(self) -> None:
        island = make_island(strategy="greedy", in_flight=1)
        waiting, best, best_id = island.seed([SEED]), float("inf"), ""
        for _ in range(40):
            (candidate,) = waiting
            if candidate.lineage.parents:
                assert candidate.lineage.parents[0] == best_id
            verdict = LAND.judge(candidate)
            if verdict.latency and verdict.latency.device_us < best:
                best, best_id = verdict.latency.device_us, candidate.program_id
            island.tell([verdict])
            waiting = island.ask(1)


class TestBeam(StrategyContract):
    strategy = Beam

    def test_a_round_waits_for_its_verdicts(self) -> None:
        island = make_island(strategy="beam", in_flight=100)
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 100.0)])
        first = island.ask(100)
        assert len(first) == WIDTH * PLANS_PER_ROUND
        assert island.ask(100) == []
        assert not island.is_exhausted
        assert not island.is_finished
        island.tell([correct(c, 50.0 + k) for k, c in enumerate(first[:-1])])
        assert island.ask(100) == []
        island.tell([failed(first[-1])])
        second = island.ask(100)
        assert len(second) == WIDTH * PLANS_PER_ROUND
        # the best of each of the four chains leads one chain
        heads = Counter(c.lineage.parents[0] for c in second)
        assert heads == {first[k].program_id: PLANS_PER_ROUND for k in (0, 4, 8, 12)}

    def test_it_stops_after_two_rounds_without_improvement(self) -> None:
        island = make_island(strategy="beam", in_flight=100)
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 100.0)])
        for _ in range(2):
            island.tell([correct(c, 99.9) for c in island.ask(100)])
        assert island.ask(100) == []
        assert island.is_finished
        assert island.summary().is_finished

    def test_it_stops_after_five_rounds(self) -> None:
        island = make_island(strategy="beam", in_flight=100)
        (seed,) = island.seed([SEED])
        island.tell([correct(seed, 100.0)])
        latency_us, n_asked = 100.0, 0
        while asked := island.ask(100):
            latency_us *= 0.9
            n_asked += len(asked)
            island.tell([correct(c, latency_us) for c in asked])
        assert n_asked == N_ROUNDS * WIDTH * PLANS_PER_ROUND
        assert island.is_finished

    def test_a_round_goes_on_after_a_resume(self) -> None:
        island = make_island(strategy="beam", in_flight=100)
        (seed,) = island.seed([SEED])
        known = [Evaluation(candidate=seed, verdict=correct(seed, 100.0))]
        island.tell([known[0].verdict])
        known += [Evaluation(candidate=c, verdict=correct(c, 90.0)) for c in island.ask(100)[:10]]
        restored = make_island(strategy="beam", in_flight=100)
        restored.restore(known)
        assert len(restored.ask(100)) == WIDTH * PLANS_PER_ROUND - 10


def test_every_strategy_is_held_to_the_contract() -> None:
    assert set(STRATEGIES) == {contract.strategy.name for contract in StrategyContract.__subclasses__()}


def test_a_misspelt_name_suggests_the_near_one() -> None:
    with pytest.raises(ConfigError) as error:
        make_strategy("map-elite")
    assert "map-elites" in error.value.hint


def test_searching_beats_sampling_at_equal_budgets() -> None:
    """Over twelve landscapes and 80 candidates each: octaves that map-elites wins over best-of-n."""
    wins = []
    for instance in range(12):
        reached = {
            name: best_us(search(make_island(strategy=name, rng_seed=instance), Landscape(instance, noise=0.004), 80))
            for name in ("map-elites", "best-of-n")
        }
        wins.append(reached["best-of-n"] / reached["map-elites"])
    assert statistics.geometric_mean(wins) > 1.15

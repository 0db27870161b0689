"""The island: ids tie ask to tell, nothing is tried twice, and only what is right breeds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from support import landscape
from support.colony import PROBLEM, RUN, SEED, best_us, candidate, make_island, occupant, search, shuffled
from support.landscape import Landscape, Turn, correct, failed

from db.measures import Tier
from db.records import Candidate, LatencyKind, PrecisionClass, Verdict
from islands.grid import AddStatus
from islands.island import Island, island_rng
from islands.operators.base import Parent, Proposal
from islands.seed import Seed

LAND = Landscape(0)


def seeded(island: Island, latency_us: float = 100.0, **verdict: object) -> Island:
    """The island after its seed was found to be this fast."""
    (seed,) = island.seed([SEED])
    island.tell([correct(seed, latency_us, **verdict)])  # type: ignore[arg-type]
    return island


def held(island: Island) -> list[tuple[Candidate, Verdict]]:
    """The elites, without the time at which somebody looked."""
    return [(e.candidate, e.verdict) for e in island.elites()]


# ------------------------------------------------------------------------------------------------------- ask and tell


def test_seeds_become_candidates_each_once() -> None:
    island = make_island(2)
    other = Seed(source="BLOCK = 1\n", origin="lab.duckdb")
    asked = island.seed([SEED, other, Seed(source=SEED.source + "# a comment makes no new program\n")])
    assert [c.candidate_id for c in asked] == [f"{RUN}-2-000000", f"{RUN}-2-000001"]
    assert [c.lineage.operator for c in asked] == ["seed", "seed"]
    assert asked[1].lineage.seeded_from == "lab.duckdb"
    assert all(c.run_id == RUN and c.problem_id == PROBLEM and c.island == 2 for c in asked)


def test_nothing_is_asked_before_a_seed_is_right() -> None:
    island = make_island()
    (seed,) = island.seed([SEED])
    assert island.ask(4) == []
    island.tell([failed(seed)])
    assert island.ask(4) == []


def test_candidates_say_where_they_come_from() -> None:
    island = seeded(make_island())
    (asked,) = island.ask(1)
    seed_id = island.elites()[0].verdict.program_id
    assert asked.candidate_id == f"{RUN}-0-000001"
    assert asked.lineage.parents == (seed_id,)
    assert asked.lineage.operator == asked.lineage.technique
    assert "->" in asked.lineage.detail


def test_no_more_than_in_flight_are_out() -> None:
    island = seeded(make_island(in_flight=5))
    first = island.ask(3)
    assert len(first) == 3
    assert len(island.ask(8)) == 2
    assert island.ask(8) == []
    island.tell([failed(first[1])])
    assert len(island.ask(8)) == 1


def test_no_program_is_asked_twice() -> None:
    judged = search(make_island(), LAND, 150)
    programs = [e.candidate.program_id for e in judged]
    assert len(programs) == 150
    assert len(set(programs)) == len(programs)


def test_verdicts_may_come_in_any_order() -> None:
    island = seeded(make_island())
    asked = island.ask(8)
    verdicts = {c.candidate_id: correct(c, 50.0 + 50.0 * k) for k, c in enumerate(asked)}
    told = shuffled(list(verdicts.values()), seed=1)
    statuses = island.tell(told)
    assert len(statuses) == 8
    best = island.elites(1)[0]
    assert best.candidate == asked[0]
    assert best.verdict == verdicts[asked[0].candidate_id]


def test_strangers_and_repeats_are_rejected_and_change_nothing() -> None:
    island = seeded(make_island())
    (asked,) = island.ask(1)
    verdict = correct(asked, 50.0)
    assert island.tell([verdict]) == [AddStatus.NEW]
    before = island.summary()
    assert island.tell([verdict, correct(candidate(number=77), 1.0)]) == [AddStatus.REJECTED, AddStatus.REJECTED]
    assert island.summary() == before


def test_failed_programs_never_breed() -> None:
    island = make_island()
    waiting, wrong, parents = island.seed([SEED]), set(), set()
    for _ in range(120):
        candidate = waiting.pop(0)
        parents.update(candidate.lineage.parents)
        refused = "CACHE = 1" in candidate.source or "UNROLL = 4" in candidate.source
        wrong |= {candidate.program_id} if refused else set()
        island.tell([failed(candidate) if refused else LAND.judge(candidate)])
        waiting += island.ask(4 - len(waiting))
    assert len(wrong) > 1
    assert not wrong & parents


def test_slower_but_correct_programs_breed() -> None:
    judged = search(make_island(), LAND, 150)
    latency = {e.verdict.program_id: e.verdict.latency.device_us for e in judged if e.verdict.latency}
    best_before, slower_parents = float("inf"), 0
    for e in judged:
        slower_parents += any(latency[p] > 1.2 * best_before for p in e.candidate.lineage.parents)
        best_before = min(best_before, latency.get(e.verdict.program_id, float("inf")))
    assert slower_parents > 3


def test_the_same_seed_searches_the_same() -> None:
    def trace(rng_seed: int) -> list[tuple[str, str]]:
        judged = search(make_island(rng_seed=rng_seed), Landscape(0), 60)
        return [(e.candidate.candidate_id, e.candidate.program_id) for e in judged]

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_islands_draw_from_generators_of_their_own() -> None:
    draws = {island_rng(seed, island).random() for seed, island in itertools.product(range(3), range(3))}
    assert len(draws) == 9
    assert island_rng(1, 2).random() == island_rng(1, 2).random()
    assert island_rng(5, 0).random() == pytest.approx(0.6389632, abs=1e-7)  # the same on every machine


class Blank:
    """An operator that never has anything to propose."""

    name = "blank"
    n_parents = 1
    cost = 1.0
    prior = 0.03

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        return None


def test_operators_that_do_not_apply_are_passed_over() -> None:
    island = seeded(make_island(operators=[Blank(), Turn("WARPS", [1, 2, 4, 8])]))
    assert len(island.ask(8)) == 3
    assert not island.is_exhausted  # three are out
    only_blank = seeded(make_island(operators=[Blank()]))
    assert only_blank.ask(8) == []
    assert only_blank.is_exhausted


def test_migrants_end_exhaustion() -> None:
    island = seeded(make_island(operators=[Turn("WARPS", [4, 8])]))
    (asked,) = island.ask(8)
    island.tell([failed(asked)])
    assert island.ask(8) == []
    assert island.is_exhausted
    source = landscape.SEED_SOURCE.replace("BLOCK = 1024", "BLOCK = 64")
    island.immigrate([occupant(90.0, source=source).as_evaluation()])
    assert not island.is_exhausted
    assert len(island.ask(8)) == 1


def test_operators_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="different names"):
        make_island(operators=[Blank(), Blank()])


# ---------------------------------------------------------------------------------------- what cannot be compared


@pytest.mark.parametrize(
    "other",
    [
        {"kind": LatencyKind.MODELLED},
        {"hardware_id": "nvidia-a100"},
        {"precision": PrecisionClass.RELAXED},
    ],
)
def test_programs_of_another_key_neither_rank_nor_breed(other: dict[str, object]) -> None:
    island = seeded(make_island())
    (asked,) = island.ask(1)
    assert island.tell([correct(asked, 1.0, **other)]) == [AddStatus.REJECTED]  # type: ignore[arg-type]
    assert len(island.elites()) == 1
    assert island.summary().best_latency_us == 100.0
    assert all(asked.program_id not in c.lineage.parents for c in island.ask(8))


def test_a_seed_of_another_precision_breeds_until_one_of_the_right_one_is_found() -> None:
    island = seeded(make_island(), precision=PrecisionClass.RELAXED)
    assert island.elites() == []
    first, second = island.ask(2)
    island.tell([correct(first, 300.0)])
    assert [e.candidate for e in island.elites()] == [first]
    island.tell([failed(second)])
    assert all(c.lineage.parents == (first.program_id,) for c in island.ask(8))


def test_a_relaxed_island_holds_relaxed_programs() -> None:
    island = make_island(precision=PrecisionClass.RELAXED)
    seeded(island, precision=PrecisionClass.REFERENCE)
    assert island.elites() == []
    (asked,) = island.ask(1)
    assert island.tell([correct(asked, 50.0, precision=PrecisionClass.RELAXED)]) == [AddStatus.NEW]


# ---------------------------------------------------------------------------------------------------------- migration


def test_migrants_keep_their_ids() -> None:
    one, other = seeded(make_island(0)), make_island(1)
    leaving = one.emigrate(2)
    assert other.immigrate(leaving) == 1
    assert held(other) == held(one)
    assert other.elites()[0].candidate.island == 0


def test_an_elite_leaves_once_and_stays_here_too() -> None:
    island = seeded(make_island())
    asked = island.ask(3)
    island.tell([correct(c, 50.0 * (k + 3)) for k, c in enumerate(asked)])
    left = [e.verdict.latency.device_us for e in island.emigrate(3) if e.verdict.latency]
    assert left == [100.0, 150.0, 200.0]
    assert len(island.emigrate(3)) == 1
    assert island.emigrate(3) == []
    assert len(island.elites()) == 4


def test_a_migrant_does_not_multiply() -> None:
    one, other = seeded(make_island(0)), make_island(1)
    migrants = one.elites()
    assert other.immigrate([*migrants, *migrants]) == 1
    assert other.immigrate(migrants) == 0
    assert one.immigrate(other.emigrate(2)) == 0
    assert len(one.elites()) == len(other.elites()) == 1
    assert migrants[0].candidate.program_id not in {c.program_id for c in other.ask(8)}


def test_a_program_that_lost_its_cell_does_not_come_back_with_migrants() -> None:
    island = seeded(make_island())
    (asked,) = island.ask(1)
    island.tell([failed(asked)])
    elsewhere = occupant(50.0, source=asked.source)  # another machine's judge was kinder
    assert elsewhere.program_id == asked.program_id
    assert island.immigrate([elsewhere.as_evaluation()]) == 0


def test_migrants_that_cannot_be_compared_are_passed_over() -> None:
    island = seeded(make_island())
    made = candidate("X = 1\n")
    strangers = [
        occupant(1.0, source="X = 1\n", kind=LatencyKind.MODELLED).as_evaluation(),
        occupant(1.0, source="X = 2\n", precision=PrecisionClass.RELAXED).as_evaluation(),
        occupant(1.0, source="X = 3\n")._replace(candidate=made, verdict=failed(made)).as_evaluation(),
    ]
    assert island.immigrate(strangers) == 0


def test_children_of_migrants_are_judged_against_them() -> None:
    island = seeded(make_island(), 1000.0)
    migrant = occupant(100.0, source=landscape.SEED_SOURCE + "# other\nX = 1\n")
    island.immigrate([migrant.as_evaluation()])
    asked = next(c for c in island.ask(8) if c.lineage.parents == (migrant.program_id,))
    island.tell([correct(asked, 200.0)])
    assert island.summary().techniques[asked.lineage.technique].improved == 0


def test_migration_is_due_every_interval() -> None:
    island = make_island(migration_interval=3, migration_size=1)
    assert island.due_migrants() == []
    waiting = island.seed([SEED])
    sizes = []
    for _ in range(9):
        island.tell([LAND.judge(waiting.pop(0))])
        sizes.append(len(island.due_migrants()))
        waiting += island.ask(2)
    assert sizes == [0, 0, 1] * 3


# ---------------------------------------------------------------------------------------------- stagnation, reseeding


def tell_next(island: Island, latency_us: float, **verdict: object) -> None:
    (asked,) = island.ask(1)
    island.tell([correct(asked, latency_us, **verdict)])  # type: ignore[arg-type]


def test_an_island_stagnates_after_the_window() -> None:
    island = seeded(make_island(stagnation_window=5))
    for _ in range(4):
        tell_next(island, 99.5)  # less than 1% is no improvement
        assert not island.is_stagnant
    tell_next(island, 101.0)
    assert island.is_stagnant
    assert island.summary().is_stagnant
    assert island.summary().n_idle == 5


def test_a_faster_program_ends_stagnation() -> None:
    island = seeded(make_island(stagnation_window=2))
    tell_next(island, 120.0)
    tell_next(island, 120.0)
    assert island.is_stagnant
    tell_next(island, 98.9)
    assert not island.is_stagnant


def test_better_use_of_the_hardware_is_progress_too() -> None:
    island = seeded(make_island(stagnation_window=2), memory_sol_pct=70.0)
    tell_next(island, 120.0)
    tell_next(island, 99.9, memory_sol_pct=72.0)
    tell_next(island, 120.0)
    assert not island.is_stagnant


def test_failures_count_towards_stagnation() -> None:
    island = seeded(make_island(stagnation_window=3))
    island.tell([failed(c) for c in island.ask(3)])
    assert island.is_stagnant


def test_reseeding_starts_again_from_the_migrants() -> None:
    stuck = seeded(make_island(0, stagnation_window=1), 500.0)
    tell_next(stuck, 700.0)
    assert stuck.is_stagnant
    donor = seeded(make_island(1), 100.0)
    known = {e.candidate.program_id for e in stuck.elites()}
    assert stuck.reseed(donor.elites(4)) == 1  # the same source as its own seed: known, and yet taken
    assert held(stuck) == held(donor)
    assert not stuck.is_stagnant
    assert not known & {c.program_id for c in stuck.ask(8)}


def test_reseeding_with_nothing_keeps_what_there_is() -> None:
    island = seeded(make_island())
    assert island.reseed([]) == 0
    assert len(island.elites()) == 1


# ------------------------------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("strategy", ["map-elites", "best-of-n", "greedy", "beam"])
def test_a_restored_island_is_where_it_was(strategy: str) -> None:
    island = make_island(strategy=strategy)
    judged = search(island, LAND, 40)
    restored = make_island(strategy=strategy)
    restored.restore(judged)
    assert held(restored) == held(island)
    before, after = island.summary(), restored.summary()
    assert after.model_copy(update={"n_asked": 0, "n_in_flight": 0}) == before.model_copy(
        update={"n_asked": 0, "n_in_flight": 0}
    )


def test_a_restored_island_counts_on_and_repeats_nothing() -> None:
    judged = search(make_island(), LAND, 40)
    restored = make_island()
    restored.restore(judged)
    asked = restored.ask(8)
    first = _number(judged[-1].candidate) + 1
    assert [_number(c) for c in asked] == list(range(first, first + 8))
    assert not {c.program_id for c in asked} & {e.candidate.program_id for e in judged}


def test_restoring_is_repeatable() -> None:
    judged = search(make_island(), LAND, 30)

    def asked() -> list[Candidate]:
        island = make_island()
        island.restore(judged)
        return island.ask(8)

    assert asked() == asked()


def test_operators_that_are_gone_do_not_stop_a_resume() -> None:
    judged = search(make_island(), LAND, 30)
    restored = make_island(operators=[Turn("BLOCK", [64, 32])])
    restored.restore(judged)
    assert restored.summary().n_told == 30


def _number(asked: Candidate) -> int:
    return int(asked.candidate_id[-6:])


# ------------------------------------------------------------------------------------------------------------ summary


def test_the_summary_says_what_is_known() -> None:
    island = seeded(make_island(3), 200.0)
    tried = island.ask(3)
    verdicts: list[Verdict] = [correct(tried[0], 100.0, tier=Tier.UNDERUTILIZED), failed(tried[1])]
    island.tell(verdicts)
    summary = island.summary()
    assert (summary.island, summary.n_asked, summary.n_told, summary.n_in_flight) == (3, 4, 3, 1)
    assert (summary.best_latency_us, summary.best_speedup) == (100.0, 4.0)
    assert [(cell.tier, cell.latency_us, cell.speedup) for cell in summary.cells] == [
        (Tier.UNDERUTILIZED, 100.0, 4.0),
        (Tier.MEMORY_BOUND, 200.0, 2.0),
    ]
    counts = summary.techniques
    assert sum(count.tried for count in counts.values()) == 3
    assert counts["seed"].passed == 1
    assert counts[tried[0].lineage.technique].improved == 1
    assert summary.coverage > 0
    assert summary.qd_score == pytest.approx(2 + 4 + 1 + 4)


def test_an_empty_island_has_a_summary() -> None:
    summary = make_island().summary()
    assert summary.best_latency_us is None
    assert summary.cells == ()


def test_the_search_finds_faster_programs() -> None:
    seed_us = LAND.latency_us(landscape.SEED_SOURCE)
    assert seed_us is not None
    assert best_us(search(make_island(), LAND, 80)) < 0.6 * seed_us


def test_counters_that_come_later_move_an_elite_and_end_its_idleness() -> None:
    island = seeded(make_island(stagnation_window=3), 100.0, tier=Tier.UNDERUTILIZED)
    for candidate_ in island.ask(3):
        island.tell([failed(candidate_)])
    assert island.is_stagnant
    (elite,) = island.elites()
    assert elite.verdict.profile is not None
    better = elite.verdict.profile.model_copy(update={"memory_sol_pct": 95.0, "source": "ncu"})
    read = elite.verdict.model_copy(update={"profile": better, "tier": Tier.NEAR_OPTIMAL})
    assert island.reprofile([read]) == 1
    assert [e.verdict.tier for e in island.elites()] == [Tier.NEAR_OPTIMAL]
    assert not island.is_stagnant
    assert make_island().reprofile([read]) == 0

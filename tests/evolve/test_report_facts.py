"""What a report says must follow from the records."""

from __future__ import annotations

import pytest
from support.runs import make_evaluations, make_problem, make_run, one_evaluation

from db.measures import Tier
from db.records import Evaluation, Gate, PrecisionClass
from evolve.reports.build import render
from evolve.reports.facts import (
    CONFIRM,
    ancestors_of,
    best_of,
    cells_of,
    failure_rows,
    funnel_of,
    gather,
    lineage_of,
    running_best,
    technique_rows,
)

PROBLEM = make_problem()
RUN = make_run(PROBLEM)


def made(n: int, us: float | None, **options: object) -> Evaluation:
    return one_evaluation(PROBLEM, RUN, n, us, **options)  # type: ignore[arg-type]


def test_best_goes_to_the_fastest_that_may_replace_the_baseline() -> None:
    slow, fast, fastest_but_a_copy = made(0, 90.0), made(1, 80.0), made(2, 80.0, duplicate_of="x")
    assert best_of([fastest_but_a_copy, slow, fast]) is fast


def test_best_is_not_what_the_speed_gate_refused() -> None:
    wins, refused = made(0, 90.0), made(1, 60.0, wins=False)
    assert best_of([refused, wins]) is wins


def test_best_is_the_fastest_correct_program_when_none_beats_the_baseline() -> None:
    facts = gather(PROBLEM, RUN, [made(0, 130.0), made(1, 110.0), made(2, None)])
    assert facts.latency is not None and facts.latency.device_us == 110.0
    assert facts.is_baseline_kept


def test_the_other_precision_class_is_counted_and_kept_apart() -> None:
    relaxed = made(1, 40.0, precision=PrecisionClass.RELAXED)
    facts = gather(PROBLEM, RUN, [made(0, 90.0), relaxed])
    assert facts.latency is not None and facts.latency.device_us == 90.0
    assert facts.n_other_precision == 1
    assert [p.speedup for p in facts.points] == [pytest.approx(100 / 90)]
    assert len(facts.cells) == 1


def test_lineage_follows_first_parents_from_the_seed() -> None:
    seed = made(0, 100.0)
    middle = made(1, 80.0, parents=[seed], technique="num_warps")
    aside = made(2, 95.0, parents=[seed])
    best = made(3, 60.0, parents=[middle, aside], technique="crossover", island=1)
    steps = lineage_of(ancestors_of(best, [seed, middle, aside, best]))
    assert [s.technique for s in steps] == ["seed", "num_warps", "crossover"]
    assert [s.n for s in steps] == [1, 2, 4]
    assert [s.change for s in steps] == [None, pytest.approx(1.25), pytest.approx(80 / 60)]
    assert steps[-1].other_parents == (aside.candidate.program_id,)


def test_a_second_judgement_is_the_result_and_no_candidate() -> None:
    seed = made(0, 100.0)
    best = made(1, 50.0, parents=[seed])
    lucky = made(2, 40.0, parents=[seed])
    again = made(3, 52.0, source="VALUE = 1", parents=[best], operator=CONFIRM, technique="")
    facts = gather(PROBLEM, RUN, [seed, best, lucky, again])
    assert facts.best is again and facts.is_confirmed
    assert facts.n_evaluations == facts.funnel.proposed == len(facts.points) == 3
    assert [row.name for row in facts.techniques] == ["tile_size"]
    assert [step.latency_us for step in facts.lineage] == [100.0, 50.0, 52.0]
    assert "judged twice" in render(facts) and "judged again" in render(facts)


def test_a_second_judgement_has_the_name_that_the_search_gives_it() -> None:
    from evolve import search

    assert search.CONFIRM == CONFIRM


def test_lineage_ends_where_an_ancestor_is_its_own() -> None:
    loop = made(0, 50.0, source="A = 1")
    again = made(1, 50.0, source="A = 1", parents=[loop])
    assert len(lineage_of(ancestors_of(again, [again]))) == 1


def test_improved_means_clear_of_the_parents_interval() -> None:
    parent = made(0, 100.0, spread=0.02)
    within_noise = made(1, 97.0, parents=[parent], spread=0.02)
    clear = made(2, 90.0, parents=[parent], spread=0.02)
    refused = made(3, None, parents=[parent])
    repeated = made(4, 50.0, parents=[parent], duplicate_of="x")
    (row,) = technique_rows([parent, within_noise, clear, refused, repeated])
    assert (row.tried, row.duplicates, row.passed, row.improved) == (4, 1, 2, 1)
    assert row.best_gain == pytest.approx(100 / 90)


def test_a_gain_below_one_percent_is_no_improvement_even_where_latency_is_modelled_and_never_wavers() -> None:
    parent = made(0, 100.0, spread=0.0)
    (row,) = technique_rows([parent, made(1, 99.5, parents=[parent], spread=0.0)])
    assert row.improved == 0


def test_crossover_must_beat_the_faster_of_its_parents() -> None:
    one, other = made(0, 80.0), made(1, 60.0)
    child = made(2, 70.0, parents=[one, other])
    (row,) = technique_rows([one, other, child])
    assert row.improved == 0
    assert row.best_gain == pytest.approx(60 / 70)


def test_funnel_leaves_duplicates_out_of_the_gates() -> None:
    funnel = funnel_of([made(0, 90.0), made(1, 120.0), made(2, None), made(3, 90.0, duplicate_of="x")])
    bars = {bar.gate: (bar.asked, bar.passed) for bar in funnel.gates}
    assert bars[Gate.CORRECTNESS] == (3, 2)
    assert bars[Gate.SPEED] == (2, 1)
    assert bars[Gate.STATIC] == (0, 0)
    assert (funnel.proposed, funnel.duplicates, funnel.correct, funnel.winning) == (4, 1, 2, 1)


def test_failures_group_by_reason_whatever_the_numbers() -> None:
    reasons = ["largest error 0.5 at (1, 2)", "largest error 1e-3 at (30, 4)", "input 0 changed"]
    rows = failure_rows([made(n, None, refused=(Gate.CORRECTNESS, text)) for n, text in enumerate(reasons)])
    assert [(row.n, row.reason) for row in rows] == [(2, "largest error # at (#, #)"), (1, "input # changed")]
    assert rows[0].example == reasons[0]


def test_failure_reasons_keep_names_that_hold_digits() -> None:
    (row,) = failure_rows([made(0, None, refused=(Gate.STATIC, "needs fp32 and sm_90, not x3"))])
    assert row.reason == "needs fp32 and sm_90, not x3"


def test_cells_hold_the_fastest_program() -> None:
    slow, fast, elsewhere = made(0, 100.5), made(1, 100.0), made(2, 100.2, memory_pct=90.0)
    cells = cells_of([slow, fast, elsewhere])
    assert [(c.cell.tier, c.latency.device_us, c.n_programs) for c in cells] == [
        (Tier.MEMORY_BOUND, 100.0, 2),
        (Tier.NEAR_OPTIMAL, 100.2, 1),
    ]


def test_a_whole_run_adds_up() -> None:
    evaluations = make_evaluations(PROBLEM, RUN)
    facts = gather(PROBLEM, RUN, evaluations)
    tried = sum(row.tried for row in facts.techniques)
    assert tried == sum(e.candidate.lineage.operator != "seed" for e in evaluations)
    assert facts.lineage[-1].latency_us == min(e.verdict.latency.device_us for e in evaluations if e.verdict.latency)
    assert running_best(facts.points)[-1].speedup == facts.lineage[-1].speedup
    assert (
        sum(row.n for row in facts.failures) == facts.funnel.proposed - facts.funnel.duplicates - facts.funnel.correct
    )

"""A model whose programs are all refused gets few of the verdicts, one whose programs pass as many as it likes."""

from support.runs import make_problem, make_run, one_evaluation

from db.records import Evaluation
from evolve.allowance import GRACE, STANDSTILL_S, Allowance

PROBLEM = make_problem()
RUN = make_run(PROBLEM)


def made(n: int, us: float | None, model: str = "") -> Evaluation:
    evaluation = one_evaluation(PROBLEM, RUN, n, us)
    lineage = evaluation.candidate.lineage.model_copy(update={"model": model})
    return evaluation.model_copy(update={"candidate": evaluation.candidate.model_copy(update={"lineage": lineage})})


def test_refused_programs_use_the_allowance_up_and_verdicts_of_others_fill_it() -> None:
    allowance = Allowance()
    for n in range(GRACE):
        assert allowance.is_open
        allowance.told([made(n, None, "a/model")])
    allowance.told([made(8, None, "a/model")])
    assert not allowance.is_open
    allowance.told([made(10 + n, None) for n in range(8)])  # what structural operators propose may fail as it likes
    assert allowance.is_open


def test_a_program_that_passes_makes_good_for_one_that_did_not() -> None:
    allowance = Allowance()
    allowance.told([made(n, None, "a/model") for n in range(GRACE + 1)])
    assert not allowance.is_open
    allowance.told([made(9, 80.0, "a/model")])
    assert allowance.is_open


def test_a_search_that_stands_still_needs_them() -> None:
    now = 0.0
    allowance = Allowance(lambda: now)
    assert not allowance.is_needed
    now = STANDSTILL_S + 1
    assert allowance.is_needed
    allowance.told([made(0, 80.0)])
    assert not allowance.is_needed

"""What is best: the fastest, unless it was refused when it was judged again."""

from pathlib import Path

from support.workers import make_candidate, make_verdict

from db.records import Evaluation
from evolve.budget import Budget
from evolve.progress import ProgressMeter


def judged(number: int, tmp_path: Path, us: float, refusal: str = "") -> Evaluation:
    candidate = make_candidate(number, tmp_path, us=us)
    return Evaluation(candidate=candidate, verdict=make_verdict(candidate, refusal))


def test_a_winner_that_is_refused_the_second_time_is_best_no_more(tmp_path: Path) -> None:
    meter = ProgressMeter(Budget(10))
    fast, slow = judged(1, tmp_path, 50.0), judged(2, tmp_path, 60.0)
    for evaluation in (fast, slow):
        meter.count(evaluation)
    assert meter.best == fast
    assert not meter.confirm([judged(1, tmp_path, 50.0, refusal="it differs from the reference")])
    assert meter.best == slow


def test_a_repeated_verdict_counts_where_the_program_is_new(tmp_path: Path) -> None:
    meter = ProgressMeter(Budget(10))
    first = judged(1, tmp_path, 50.0)
    verdict = first.verdict.model_copy(update={"duplicate_of": "0123456789abcdef"})
    repeated = first.model_copy(update={"verdict": verdict})
    meter.count(repeated)
    assert meter.best == repeated

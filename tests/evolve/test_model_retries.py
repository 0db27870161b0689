"""What is tried after a file was refused: a runner-up of the part that hurts first. And which programs run up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from db.records import Evaluation, Gate, Problem
from evolve.cli.model_view import attempt_line
from evolve.models.budget import Allotment
from evolve.models.delivery import deliver
from evolve.models.improve import Tools, improve
from evolve.models.output import summary_of
from evolve.models.records import (
    Attempt,
    Found,
    PartResult,
    PutTogether,
    RunnerUp,
)
from evolve.models.searching import runners_up
from tests.support.runs import make_problem, make_run, one_evaluation
from tests.support.whole_models import FIRST, Bench, accepted, always, part, too_slow, wrong


def runner_up(program_id: str, speedup: float, ratio: float | None = 0.5) -> RunnerUp:
    return RunnerUp(source=f"# {program_id}", program_id=program_id, speedup=speedup, error_ratio=ratio)


def with_runners_up(one: PartResult, *others: RunnerUp) -> PartResult:
    return one.model_copy(update={"found": one.found.model_copy(update={"runners_up": others})})


def tried_with(winners: Sequence[PartResult], right: set[str], refusal: Attempt) -> list[tuple[str, ...]]:
    """Programs of each file that was put together, where only `right` ones together are accepted."""

    def attempt(chosen: Sequence[PartResult], note: str) -> Attempt:
        programs = tuple(one.found.program_id for one in chosen)
        answer = accepted(1.2) if set(programs) == right else refusal if programs else too_slow(1.0)
        return answer.model_copy(update={"parts": tuple(one.name for one in chosen), "programs": programs})

    return [one.programs for one in deliver(winners, attempt)]


def test_the_first_retry_is_another_program_of_the_part_that_hurts() -> None:
    a, b = part("a", 0, 0, 0.5, 2.0), part("b", 1, 1, 0.3, 3.0, ratio=8.0)
    b = with_runners_up(b, runner_up("fast", 2.9, 9.0), runner_up("exact", 1.5, 0.4), runner_up("unknown", 2.0, None))
    assert tried_with([a, b], {"a", "exact"}, wrong()) == [("a", "b"), (), ("a", "exact")]
    a = with_runners_up(part("a", 0, 0, 0.1, 1.2), runner_up("slow", 1.1), runner_up("next", 1.15))
    assert tried_with([a, b], {"next", "b"}, too_slow(0.9)) == [("a", "b"), ("next", "b")]
    assert tried_with([a, b], {"b"}, too_slow(0.9)) == [("a", "b"), ("next", "b"), ("b",)]


def test_a_single_winner_is_tried_with_another_program_and_no_third_time() -> None:
    alone = with_runners_up(part("a", 0, 0, 0.5, 2.0), runner_up("next", 1.9), runner_up("last", 1.8))
    assert tried_with([alone], {"next"}, too_slow(0.9)) == [("a",), ("next",)]
    assert tried_with([alone], set(), too_slow(0.9)) == [("a",), ("next",)]


def test_programs_that_are_less_exact_are_no_answer_to_an_inexact_file() -> None:
    a, b = part("a", 0, 0, 0.5, 2.0), with_runners_up(part("b", 1, 1, 0.3, 3.0, ratio=8.0), runner_up("worse", 2.0, 9))
    assert tried_with([a, b], {"a"}, wrong()) == [("a", "b"), (), ("a",)]


def test_a_reason_that_names_another_part_drops_that_one() -> None:
    a = with_runners_up(part("part_1_1", 0, 0, 0.1, 1.2), runner_up("next", 1.15))
    b = part("part_2_2", 1, 1, 0.3, 3.0)
    notes: list[str] = []

    def attempt(chosen: Sequence[PartResult], note: str) -> Attempt:
        notes.append(note)
        answer = (
            wrong("part_2_2 reads out of bounds", "correctness") if len(notes) == 2 else too_slow(0.9, "not faster")
        )
        answer = accepted(1.1) if len(notes) == 3 else answer
        return answer.model_copy(update={"parts": tuple(one.name for one in chosen)})

    ended = deliver([a, b], attempt)
    assert [one.parts for one in ended] == [("part_1_1", "part_2_2"), ("part_1_1", "part_2_2"), ("part_1_1",)]
    assert notes == [
        "",
        "another program of part_1_1 (next, 1.15x, 0.5 times the error of the reference): refused by speed: not faster",
        "without part_2_2: refused by correctness: part_2_2 reads out of bounds",
    ]


def test_a_runner_up_that_is_delivered_is_what_is_told_of_its_part(tmp_path: Path) -> None:
    bench = Bench("conv_epilogue", {FIRST: 2.0}, always(accepted(1.2)))
    found, judge = bench.search, bench.judge

    def search(name: str, problem: Problem, allotment: Allotment) -> Found:
        others = (runner_up("other", 1.5).model_copy(update={"source": problem.seeds[0] + "\n# the other"}),)
        return found(name, problem, allotment).model_copy(update={"runners_up": others})

    def judged(source: str, parts: Sequence[PartResult]) -> Attempt:
        refused = parts[0].found.program_id == FIRST
        return judge(source, parts).model_copy(update=too_slow(0.9).model_dump(include=REFUSAL) if refused else {})

    tools = Tools(bench.take_apart, search, judged)
    ended = improve(bench.decomposition.problem, tools, Allotment(200), on_event=bench.events.append)
    told = next(one for one in ended.parts if one.is_used)
    assert (told.name, told.found.program_id, told.found.speedup) == (FIRST, "other", 1.5)
    assert [attempt.programs for attempt in ended.attempts] == [(FIRST,), ("other",)]
    lines = [attempt_line(e.attempt) for e in bench.events if isinstance(e, PutTogether)]
    assert lines[1] == f"put together with {FIRST} (a runner-up): 1.20x"
    summary = summary_of(ended)
    assert "# the other" not in json.dumps(summary) and "another program of" in json.dumps(summary["attempts"])


REFUSAL = {"replaces_baseline", "speedup", "refused_by", "reason"}


def test_runners_up_are_other_programs_that_gain_the_next_fastest_and_the_most_exact() -> None:
    problem = make_problem()
    run = make_run(problem)
    times = [(1, 90.0), (2, 30.0), (3, 40.0), (4, 41.0), (5, 42.0), (6, 43.0), (7, 44.0), (8, 89.0), (9, 35.0)]
    judged = {n: one_evaluation(problem, run, n, us) for n, us in times}
    ratios: dict[int, float | None] = {4: None, 5: 3.0, 6: None, 7: 0.2}
    for n, ratio in ratios.items():
        judged[n] = _judged_as(judged[n], error_ratio=ratio)
    judged[2] = _judged_as(judged[2], fingerprint="same work")
    judged[9] = _judged_as(judged[9], fingerprint="same work")  # the best one, written differently
    found = runners_up(judged[2], list(judged.values()), 3.0)
    assert [one.program_id for one in found] == [judged[n].verdict.program_id for n in (3, 4, 7)]
    assert [one.speedup for one in found] == pytest.approx([90 / 40, 90 / 41, 90 / 44])
    assert found[0].source == judged[3].candidate.source
    refused = one_evaluation(problem, run, 3, None, refused=(Gate.MODEL, "too far off"))
    again = runners_up(judged[2], [*judged.values(), refused], 3.0)
    assert [one.program_id for one in again] == [judged[n].verdict.program_id for n in (4, 5, 7)]


def _judged_as(evaluation: Evaluation, **changes: object) -> Evaluation:
    return evaluation.model_copy(update={"verdict": evaluation.verdict.model_copy(update=changes)})

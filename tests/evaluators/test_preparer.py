"""Preparation in real children: captures, fingerprints, compiled kernels that are handed on, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.records import Candidate, EntryPoint, Gate, Lineage, Problem
from evaluators.evaluator import EvaluatorSettings
from evaluators.hardware import load_hardware
from evaluators.preparer import Preparer, discard_cache
from evaluators.problems import load_problem


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("softmax")


@pytest.fixture(scope="module")
def preparer(problem: Problem) -> Iterator[Preparer]:
    opened = Preparer(problem, EvaluatorSettings(), load_hardware("h200"))
    yield opened
    opened.close()


def candidate_of(problem: Problem, source: str, entry_point: EntryPoint = EntryPoint.MODEL) -> Candidate:
    return Candidate(
        candidate_id="p-0-000000",
        run_id="p",
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=entry_point,
        lineage=Lineage(operator="seed"),
    )


def test_both_workloads_are_captured_and_the_kernels_handed_on(preparer: Preparer, problem: Problem) -> None:
    prepared = preparer.prepare(candidate_of(problem, problem.seeds[0]))
    assert prepared.verdict is None and prepared.fingerprint
    assert [c.workload for c in prepared.captures] == [problem.full.name, problem.small.name]
    assert prepared.captures[0].launches[0].grid == (4096, 1, 1)
    cubins = list(Path(prepared.cache_dir).rglob("*.cubin"))
    assert cubins and prepared.gates[0].evidence["n_registers"] > 0
    discard_cache(prepared)
    assert not Path(prepared.cache_dir).parent.exists()


def test_renaming_keeps_the_fingerprint_and_more_warps_change_it(preparer: Preparer, problem: Problem) -> None:
    seed = problem.seeds[0]
    variants = (seed, seed.replace("row_max", "largest"), seed.replace("num_warps=4", "num_warps=8"))
    prepared = [preparer.prepare(candidate_of(problem, source)) for source in variants]
    prints = [p.fingerprint for p in prepared]
    assert prints[0] == prints[1] != prints[2]
    assert prepared[0].candidate.program_id != prepared[1].candidate.program_id


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return out", "return torch.softmax(x, 1)", "torch.softmax is not for host code"),
        ("BLOCK = 1024", "BLOCK = 1000", "power of 2"),
        ("class ModelNew", "class Other", "defines no ModelNew"),
        ("n_rows, n_cols = x.shape", "n_rows, n_cols = 1 // 0", "ZeroDivisionError"),
    ],
)
def test_a_refusal_is_a_verdict_of_the_static_gate(
    old: str, new: str, words: str, preparer: Preparer, problem: Problem
) -> None:
    prepared = preparer.prepare(candidate_of(problem, problem.seeds[0].replace(old, new)))
    assert prepared.verdict is not None and prepared.verdict.gates[-1].gate is Gate.STATIC
    assert words in prepared.verdict.reason
    assert prepared.verdict.seconds["prepare"] > 0 and prepared.cache_dir == ""


def test_where_candidates_are_ranked_before_they_are_judged_the_model_is_asked(problem: Problem) -> None:
    ranking = Preparer(problem, EvaluatorSettings(pre_rank=1.1), load_hardware("h200"))
    try:
        fast, slow = (
            ranking.prepare(candidate_of(problem, source)).modelled_us
            for source in (problem.seeds[0], problem.seeds[0].replace("BLOCK = 1024", "BLOCK = 32"))
        )
    finally:
        ranking.close()
    assert fast is not None and slow is not None and slow > 1.5 * fast > 500


def test_the_model_is_not_asked_otherwise(preparer: Preparer, problem: Problem) -> None:
    assert preparer.prepare(candidate_of(problem, problem.seeds[0])).modelled_us is None

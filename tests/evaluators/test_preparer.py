"""Preparation in real children: captures, fingerprints, compiled kernels that are handed on, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
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


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = sys.modules["triton"] = None
from db.records import Candidate, Problem
from evaluators.evaluator import EvaluatorSettings
from evaluators.hardware import load_hardware
from evaluators.preparer import Preparer

told = json.load(sys.stdin)
told["problem"] = Problem.model_validate(told["problem"])
candidates = [Candidate.model_validate(one) for one in told.pop("candidates")]
preparer = Preparer(settings=EvaluatorSettings(), hardware=load_hardware("h200"), keeps_cache=False, **told)
prepared = [preparer.prepare(candidate) for candidate in candidates]
preparer.close()
print(json.dumps([prepared[0].fingerprint, prepared[1].verdict.reason, prepared[1].verdict.versions]))
"""


def test_what_an_evaluator_knows_of_the_workloads_spares_a_preparer_torch(preparer: Preparer, problem: Problem) -> None:
    sources = problem.seeds[0], problem.seeds[0].replace("return out", "return torch.softmax(x, 1)")
    told = {
        "problem": problem.model_dump(mode="json"),
        "candidates": [candidate_of(problem, source).model_dump(mode="json") for source in sources],
        "forwards": preparer.forwards,
        "versions": {"torch": "as the evaluator says"},
    }
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    fingerprint, reason, versions = json.loads(done.stdout)
    assert fingerprint == preparer.prepare(candidate_of(problem, sources[0])).fingerprint
    assert "torch.softmax" in reason and versions == told["versions"]

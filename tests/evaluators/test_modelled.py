"""The cascade without a GPU, on a problem of the suite: real children, real interpreter, real compiler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from db.errors import SeedError
from db.records import Candidate, DeviceKind, Gate, LatencyKind, Lineage, Outcome, Problem, Profile, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem


def judge(evaluator: Evaluator, problem: Problem, source: str, name: str = "0") -> Verdict:
    return evaluator.judge(candidate_of(problem, source, name))


def candidate_of(problem: Problem, source: str, name: str = "0") -> Candidate:
    return Candidate(
        candidate_id=f"t-0-{name}",
        run_id="t",
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=problem.entry_point,
        lineage=Lineage(operator="seed"),
    )


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("softmax")


@pytest.fixture(scope="module")
def evaluator(problem: Problem) -> Iterator[Evaluator]:
    with open_evaluator(problem, EvaluatorSettings(target="h200"), DeviceKind.CPU) as opened:
        yield opened


def test_the_seed_equals_its_baseline_and_does_not_replace_it(evaluator: Evaluator, problem: Problem) -> None:
    verdict = judge(evaluator, problem, problem.seeds[0])
    assert verdict.is_correct and verdict.latency is not None, verdict.reason
    assert verdict.latency.kind is LatencyKind.MODELLED and verdict.latency.method == "model"
    assert verdict.latency.speedup == 1.0 and not verdict.replaces_baseline
    assert verdict.latency.low_us == verdict.latency.high_us == evaluator.baseline.device_us
    assert verdict.captures[0].launches[0].traffic is not None and verdict.tier is not None
    assert verdict.error_ratio is not None and verdict.error_ratio < 10
    assert {"prepare", "correctness", "model"} <= set(verdict.seconds)


def test_its_profile_is_the_models_unless_a_verdict_has_one(evaluator: Evaluator, problem: Problem) -> None:
    candidates = [candidate_of(problem, problem.seeds[0]), candidate_of(problem, "x = 1")]
    known = Profile(source="compiled", memory_sol_pct=12.0)
    first, second = evaluator.profile(candidates, [known])
    assert first == known and second.source == "none" and "ModelNew" in second.note
    modelled = evaluator.profile(candidates[:1])[0]
    assert modelled.source == "compiled" and modelled.duration_us == evaluator.baseline.device_us


def test_a_larger_tile_is_another_program_with_another_latency(evaluator: Evaluator, problem: Problem) -> None:
    seed = judge(evaluator, problem, problem.seeds[0])
    larger = judge(evaluator, problem, problem.seeds[0].replace("BLOCK = 1024", "BLOCK = 4096"), "1")
    assert larger.is_correct and larger.latency is not None and seed.latency is not None
    assert larger.fingerprint != seed.fingerprint and larger.latency.device_us != seed.latency.device_us


def test_comments_and_names_leave_the_fingerprint(evaluator: Evaluator, problem: Problem) -> None:
    renamed = problem.seeds[0].replace("row_max", "largest") + "\n# a comment\n"
    prepared = [
        evaluator.prepare(
            Candidate(
                candidate_id=f"t-0-{i}",
                run_id="t",
                problem_id=problem.problem_id,
                island=0,
                source=source,
                entry_point=problem.entry_point,
                lineage=Lineage(operator="seed"),
            )
        )
        for i, source in enumerate((problem.seeds[0], renamed))
    ]
    assert prepared[0].fingerprint == prepared[1].fingerprint != ""
    assert prepared[0].candidate.program_id != prepared[1].candidate.program_id


WRONG = {
    "does not parse": ("scale = 1.0", "scale = = 1.0", Gate.STATIC, "parse"),
    "does not compile": ("tl.exp(", "tl.expp(", Gate.STATIC, "does not compile at line"),
    "computes in torch": ("return out", "return out.exp()", Gate.STATIC, "computes in torch"),
    "wrong": ("1.0 / row_sum", "1.01 / row_sum", Gate.CORRECTNESS, "outside the tolerance"),
    "wrong shape": ("return out", "return out[:, 1:]", Gate.CORRECTNESS, "shape"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_with_gate_and_reason(name: str, evaluator: Evaluator, problem: Problem) -> None:
    old, new, gate, words = WRONG[name]
    source = problem.seeds[0].replace(old, new)
    verdict = judge(evaluator, problem, source)
    assert verdict.outcome is Outcome.FAILED and verdict.gates[-1].gate is gate
    assert words in verdict.reason


def test_an_input_that_is_changed_is_noticed(evaluator: Evaluator, problem: Problem) -> None:
    spoilt = problem.seeds[0].replace(
        "tl.store(out_row + offsets, tl.exp(x - row_max) * scale, mask=mask)",
        "tl.store(out_row + offsets, tl.exp(x - row_max) * scale, mask=mask)\n"
        "        tl.store(x_row + offsets, x + 1.0, mask=mask)",
    )
    verdict = judge(evaluator, problem, spoilt)
    assert verdict.gates[-1].gate is Gate.INTEGRITY and "input 0" in verdict.reason


def test_a_seed_that_does_not_compile_is_an_error_of_the_user(problem: Problem) -> None:
    broken = problem.model_copy(update={"seeds": (problem.seeds[0].replace("tl.exp(", "tl.expp("),)})
    with pytest.raises(SeedError, match="does not compile"):
        open_evaluator(broken, EvaluatorSettings(), DeviceKind.CPU)

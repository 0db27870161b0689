"""No cheat of the corpus is accepted, and no honest twin refused: by reading all of them, by judging a part.

`python -m benchmarks.cheat_corpus` judges all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from db.records import DeviceKind, Gate, Outcome, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.gates.static import check_policy
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from tests.evaluators.test_modelled import judge
from tests.support.corpus import Specimen, specimens

CHEATS, HONEST = specimens("cheats"), specimens("honest")
JUDGED_PROBLEMS = ("softmax", "swiglu")  # each needs an evaluator of its own


def passes_policy(specimen: Specimen) -> bool:
    return check_policy(specimen.source, "ModelNew").passed


def names(found: list[Specimen]) -> list[str]:
    return [specimen.name for specimen in found]


READ_ONLY = [s for s in CHEATS if not passes_policy(s)]
RUN = [s for s in CHEATS if s not in READ_ONLY and s.problem in JUDGED_PROBLEMS and not s.needs_gpu]
RUN_HONEST = [s for s in HONEST if s.problem in JUDGED_PROBLEMS and s.name.startswith(("re", "s", "g", "pat", "det"))]


def test_every_kind_has_two_cheats_and_an_honest_twin() -> None:
    cheats, honest = Counter(s.kind for s in CHEATS), Counter(s.kind for s in HONEST)
    assert len(CHEATS) >= 60 and len(cheats) >= 25
    assert {kind for kind, n in cheats.items() if n < 2 or not honest[kind]} == set()


def test_what_only_a_gpu_can_tell_is_little() -> None:
    assert len([s for s in CHEATS if s.needs_gpu]) <= 8


# What reading alone must stop: these keep state, reach the harness, or find functions without naming them, and a run
# would not show it.
READING = (
    *("alias", "autotune", "cached", "decorator", "elsewhere", "fallback"),
    *("harness", "iterator", "overlap", "patched", "strings", "unicode"),
)


@pytest.mark.parametrize("kind", READING)
def test_reading_stops_a_kind(kind: str) -> None:
    passed = [s.name for s in CHEATS if s.kind == kind and passes_policy(s)]
    assert set(passed) <= {
        *("cached_on_the_device", "elsewhere_construction"),  # kernels and weights, host code is as it should be
        *("decorator_impostor_attribute", "fallback_generator"),  # compute with operators: the dry run sees it
    }


@pytest.mark.parametrize("honest", HONEST, ids=names(HONEST))
def test_reading_refuses_no_honest_program(honest: Specimen) -> None:
    assert check_policy(honest.source, "ModelNew").reason == ""


@pytest.fixture(scope="module")
def evaluators() -> Iterator[dict[str, Evaluator]]:
    opened: dict[str, Evaluator] = {}
    try:
        for name in JUDGED_PROBLEMS:
            opened[name] = open_evaluator(load_problem(name), EvaluatorSettings(), DeviceKind.CPU)
        yield opened
    finally:
        for evaluator in opened.values():
            evaluator.close()


def verdict_of(specimen: Specimen, evaluators: dict[str, Evaluator]) -> Verdict:
    return judge(evaluators[specimen.problem], load_problem(specimen.problem), specimen.source, specimen.name)


@pytest.mark.parametrize("cheat", RUN, ids=names(RUN))
def test_running_refuses_a_cheat(cheat: Specimen, evaluators: dict[str, Evaluator]) -> None:
    verdict = verdict_of(cheat, evaluators)
    assert verdict.outcome is Outcome.FAILED, f"{cheat.claim}: {verdict.outcome}"


@pytest.mark.parametrize("honest", RUN_HONEST, ids=names(RUN_HONEST))
def test_running_refuses_no_honest_program(honest: Specimen, evaluators: dict[str, Evaluator]) -> None:
    verdict = verdict_of(honest, evaluators)
    assert verdict.is_correct, verdict.reason


@pytest.mark.parametrize(
    ("name", "gate", "words"),
    [
        ("skipped_at_full_size", Gate.INTEGRITY, "write 0.0244% of output 0"),
        ("skipped_copy_at_full_size", Gate.INTEGRITY, "computes 5.51% of what the baseline computes"),
        ("detected_fake_tensors", Gate.INTEGRITY, "has grid (3, 1, 1) when it runs and (8, 1, 1) in the dry run"),
        ("detected_argument", Gate.INTEGRITY, "int 2501) when it runs and"),
        ("returned_transposed", Gate.CORRECTNESS, "strides (1, 3) instead of (2501, 1)"),
        ("returned_alias", Gate.CORRECTNESS, "memory of an input"),
        ("ghost_hasattr", Gate.INTEGRITY, "in the dry run it did not"),
        ("ghost_printed", Gate.STATIC, "reads a value from the device"),
        ("ghost_data_dependent", Gate.STATIC, "the host has to read"),
        ("ghost_empty_grid", Gate.STATIC, "every grid is empty"),
        ("stale_empty", Gate.CORRECTNESS, "NaN"),
        ("stale_workspace", Gate.STATIC, "nobody has written in this call (seen_ptr)"),
        ("cached_on_the_device", Gate.STATIC, "nobody has written in this call (out_ptr)"),
    ],
)
def test_the_gate_that_is_meant_to_stop_it_does(
    name: str, gate: Gate, words: str, evaluators: dict[str, Evaluator]
) -> None:
    verdict = verdict_of(next(s for s in CHEATS if s.name == name), evaluators)
    assert verdict.gates[-1].gate is gate and words in verdict.reason


def test_what_is_short_in_the_trace_alone_has_no_latency(evaluators: dict[str, Evaluator]) -> None:
    cheat = next(s for s in CHEATS if s.name == "detected_fake_tensors")
    source = cheat.source.replace('"fake_mode")', '"fake_mode") and not hasattr(softmax_kernel, "params")')
    verdict = verdict_of(cheat._replace(name="detected_trace", source=source), evaluators)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "has grid (8, 1, 1) when it runs" in verdict.reason

"""Cheats that only a GPU can tell, and honest twins, before the measuring judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from db.records import DeviceKind, Outcome
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from tests.evaluators.test_modelled import judge
from tests.support.corpus import Specimen, specimens

pytestmark = pytest.mark.gpu

ALSO = ("cached_on_the_device", "ghost_hasattr", "ghost_printed", "stale_atomic", "stale_workspace")
CHEATS = [s for s in specimens("cheats") if s.needs_gpu or s.name in ALSO]
HONEST = [s for s in specimens("honest") if s.problem in ("swiglu", "matvec", "matmul")]
PROBLEMS = sorted({s.problem for s in (*CHEATS, *HONEST)})


@pytest.fixture(scope="module", params=PROBLEMS)
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    with open_evaluator(load_problem(request.param), EvaluatorSettings(), DeviceKind.CUDA) as opened:
        yield opened


def of_problem(found: list[Specimen], evaluator: Evaluator) -> list[Specimen]:
    return [s for s in found if s.problem == evaluator.problem.name]  # type: ignore[attr-defined]


def test_cheats_are_refused_and_honest_twins_pass(evaluator: Evaluator) -> None:
    problem = evaluator.problem  # type: ignore[attr-defined]
    cheats, honest = of_problem(CHEATS, evaluator), of_problem(HONEST, evaluator)
    verdicts = {s.name: judge(evaluator, problem, s.source, s.name) for s in (*cheats, *honest)}
    for name, verdict in verdicts.items():
        print(f"\n{name}: {verdict.outcome} {verdict.reason} {verdict.latency}")
    accepted = [s.name for s in cheats if verdicts[s.name].outcome is Outcome.CORRECT]
    refused = {s.name: verdicts[s.name].reason for s in honest if not verdicts[s.name].is_correct}
    assert (accepted, refused) == ([], {})

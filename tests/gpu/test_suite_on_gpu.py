"""On a GPU, at the workload that is timed: every seed of the suite is right and every mutant is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from evaluators.gates.correctness import compare
from evaluators.gates.model_gate import exactness, max_abs_error, reference_error
from evaluators.input_sets import InputSet, ReferenceSets
from evaluators.problems import mutants, suite_names, suite_problem
from evaluators.problems.module import load_module
from evaluators.problems.reference import Reference
from evaluators.tolerances import tolerance_for

pytestmark = pytest.mark.gpu


def run(source: str, name: str, reference: Reference, inputs: list[Any]) -> list[Tensor]:
    model = load_module(source, name).ModelNew(*reference.init_args())
    model.load_state_dict(reference.weights("cuda"))
    with torch.no_grad():
        outputs = model.to("cuda")(*inputs)
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


@pytest.mark.parametrize("name", suite_names())
def test_seed_is_right_and_mutants_are_refused_at_full_size(name: str) -> None:
    problem = suite_problem(name)
    reference = Reference(problem, problem.full)
    inputs = reference.draw_inputs(0, "cuda")
    expected = reference.expected(inputs)
    tolerances = [tolerance_for(problem, str(e.dtype).removeprefix("torch.")) for e in expected]
    for program, source in {"seed": problem.seeds[0], **mutants(problem)}.items():
        actual = run(source, f"{name}_{program}", reference, inputs)
        assert [(a.shape, a.dtype) for a in actual] == [(e.shape, e.dtype) for e in expected]
        found = [compare(a, e, t) for a, e, t in zip(actual, expected, tolerances, strict=True)]
        worst = [mismatch.describe() for mismatch in found if mismatch is not None]
        assert bool(worst) == (program != "seed"), f"{program}: {worst}"


@pytest.mark.parametrize("name", suite_names())
@pytest.mark.parametrize("variant", ["flipped", "scaled"])
def test_seed_is_right_on_other_inputs(name: str, variant: Any) -> None:
    problem = suite_problem(name)
    wanted = [InputSet(problem.full, 7, v, False, False) for v in ("plain", variant)]
    sets = ReferenceSets(problem, wanted, "cuda", budget_bytes=8 << 30)
    if sets.sets != wanted:
        pytest.skip("the reference is not finite there")
    drawn = sets.drawn(wanted[1])
    actual = run(problem.seeds[0], f"{name}_{variant}", sets.references[problem.full.name], drawn.inputs)
    for a, e, tolerance in zip(actual, drawn.expected, drawn.tolerances, strict=True):
        mismatch = compare(a, e, tolerance)
        assert mismatch is None, mismatch and mismatch.describe()


@pytest.mark.parametrize("name", suite_names())
def test_seed_is_as_exact_as_the_reference(name: str) -> None:
    problem = suite_problem(name)
    reference = Reference(problem, problem.full)
    inputs = reference.draw_inputs(123, "cuda")
    expected, exact = reference.expected(inputs), reference.expected_float64(inputs)
    for a, e, x in zip(run(problem.seeds[0], f"{name}_exact", reference, inputs), expected, exact, strict=True):
        if x.dtype == torch.float64:
            found = exactness(max_abs_error(a, x), reference_error(e, x))
            assert found.precision == "reference", found

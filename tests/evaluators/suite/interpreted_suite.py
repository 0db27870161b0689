"""Run under TRITON_INTERPRET=1 by test_suite_programs: seeds and mutants of the suite on their small workloads.

Prints one JSON object: problem -> program -> for each drawing the largest error as a share of the tolerance; a wrong
shape or dtype, and an input that changed, count as infinite.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch
from torch import Tensor

from db.records import Problem
from evaluators.interpreter import shims
from evaluators.problems import mutants, suite_names, suite_problem
from evaluators.problems.module import load_module
from evaluators.problems.reference import Reference
from evaluators.problems.variants import Variant

DRAWINGS: list[tuple[int, Variant]] = [(0, "plain"), (42, "plain"), (1337, "plain"), (7, "flipped"), (7, "scaled")]


def error_share(problem: Problem, actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error over its tolerance; above 1 is refused."""
    shares = [0.0]
    for a, e in zip(actual, expected, strict=True):
        if a.shape != e.shape or a.dtype != e.dtype:
            return math.inf
        bound = problem.tolerances[str(e.dtype).removeprefix("torch.")]
        share = (a.double() - e.double()).abs() / (bound.atol + bound.rtol * e.double().abs())
        shares.append(share.nan_to_num(math.inf).max().item())
    return max(shares)


def run(source: str, name: str, reference: Reference, inputs: list[Any]) -> list[Tensor]:
    model = load_module(source, name).ModelNew(*reference.init_args())
    model.load_state_dict(reference.weights("cpu"))
    with torch.no_grad():
        outputs = model(*inputs)
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def judged(problem: Problem, reference: Reference, source: str, name: str, seed: int, variant: Variant) -> float:
    inputs = reference.draw_inputs(seed, "cpu", variant)
    expected = reference.expected(inputs)
    if not all(e.isfinite().all() for e in expected):
        return 0.0  # the gate leaves such drawings out
    kept = [value.clone() for value in inputs]
    share = error_share(problem, run(source, name, reference, inputs), expected)
    return share if all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True)) else math.inf


def main() -> None:
    shims.apply()
    torch.set_num_threads(1)
    report: dict[str, dict[str, list[float]]] = {}
    for problem_name in sys.argv[1:] or suite_names():
        problem = suite_problem(problem_name)
        reference = Reference(problem, problem.small)
        report[problem_name] = {}
        for name, source in {"seed": problem.seeds[0], **mutants(problem)}.items():
            module = f"{problem_name}_{name}"
            drawings = DRAWINGS if name == "seed" else DRAWINGS[:3]
            shares = [judged(problem, reference, source, module, seed, variant) for seed, variant in drawings]
            report[problem_name][name] = shares
    print(json.dumps(report))


if __name__ == "__main__":
    main()

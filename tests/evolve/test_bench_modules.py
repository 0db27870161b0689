"""The modules of benchmarks/models: each loads, runs, is no degenerate problem, and fits the GPU it is meant for."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import pytest

from db.records import Problem, TensorSpec
from evaluators.problems import load_problem
from evaluators.problems.degenerate import degeneracy
from evaluators.problems.reference import Reference
from evolve.models.bench import modules_of

FOLDER = Path(__file__).parents[2] / "benchmarks" / "models"
MODULES = modules_of([FOLDER])
BYTES = {"float32": 4, "int64": 8, "bool": 1}
MOST_BYTES = 3 << 30  # of inputs, weights and outputs; intermediate results and float64 take the rest of 12 GB


@lru_cache
def problem_of(module: Path) -> Problem:
    return load_problem(str(module))


def n_bytes(specs: list[TensorSpec]) -> int:
    return sum(math.prod(spec.shape) * BYTES[spec.dtype] for spec in specs)


def test_there_are_enough_of_them() -> None:
    assert len(MODULES) >= 14


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_module_runs_at_its_full_size_on_fake_tensors(module: Path) -> None:
    problem = problem_of(module)
    reference = Reference(problem, problem.full)
    inputs = [spec for spec in reference.input_specs() if isinstance(spec, TensorSpec)]
    outputs = reference.output_specs()
    assert inputs and outputs and all(math.prod(spec.shape) for spec in outputs)
    assert n_bytes([*inputs, *outputs, *reference.weight_specs()]) < MOST_BYTES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_module_asks_for_work_at_its_small_size(module: Path) -> None:
    problem = problem_of(module)
    reference = Reference(problem, problem.small)
    inputs = reference.draw_inputs(0, "cpu")
    outputs = reference.expected(inputs)
    assert all(output.isfinite().all() for output in outputs)
    assert degeneracy(inputs, outputs) == ""

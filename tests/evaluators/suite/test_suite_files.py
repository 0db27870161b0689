"""The files of the suite say what the suite promises: sizes, seeds, tolerances, and mutants that are legal programs."""

from __future__ import annotations

import ast

import pytest

from db.errors import ProblemError
from evaluators.gates.static import check_policy
from evaluators.problems import load_problem, mutants, suite_names, suite_problem

# figures of the issue; what is not named there is left to the file
PROMISED = {
    "softmax": {"n_rows": 4096, "n_cols": 65536},
    "cross_entropy": {"batch_size": 32768, "n_classes": 4096},
    "layer_norm": {"channels": 64, "height": 256, "width": 256},
    "l1_norm": {"n_rows": 4096, "n_cols": 65536},
    "cumsum": {"n_rows": 4096, "n_cols": 65536},
    "reverse_cumsum": {"n_rows": 4096, "n_cols": 65536},
    "kl_div": {"batch_size": 32768, "n_classes": 4096},
    "fused_add_rms_norm": {"n_tokens": 16384, "hidden": 4096},
    "matvec": {"n_rows": 2048, "n_cols": 262144},
    "matmul": {"M": 4096, "N": 4096, "K": 4096},
}
ALL = {*PROMISED, "rms_norm", "group_norm", "avg_pool", "swiglu", "int8_quant"}


def test_the_suite_has_fifteen_problems() -> None:
    assert set(suite_names()) == ALL


@pytest.mark.parametrize(("name", "sizes"), PROMISED.items())
def test_the_timed_workload_has_the_promised_sizes(name: str, sizes: dict[str, int]) -> None:
    full = suite_problem(name).full.sizes
    assert {size: full[size] for size in sizes} == sizes


@pytest.mark.parametrize("name", suite_names())
def test_a_small_workload_has_a_size_that_no_tile_divides(name: str) -> None:
    sizes = suite_problem(name).small.sizes.values()
    assert any(size % 16 for size in sizes if isinstance(size, int) and size > 16)


@pytest.mark.parametrize("name", suite_names())
def test_a_problem_has_one_seed_and_tolerances_of_its_own(name: str) -> None:
    problem = suite_problem(name)
    assert len(problem.seeds) == 1 and problem.tolerances
    assert "autotune" not in problem.seeds[0]
    assert ast.get_docstring(ast.parse(problem.source)) and ast.get_docstring(ast.parse(problem.seeds[0]))


@pytest.mark.parametrize("name", suite_names())
def test_seed_and_mutants_are_legal_programs(name: str) -> None:
    problem = suite_problem(name)
    programs = {"seed": problem.seeds[0], **mutants(problem)}
    refused = {program: check_policy(source, problem.entry_point).reason for program, source in programs.items()}
    assert {program: reason for program, reason in refused.items() if reason} == {}


@pytest.mark.parametrize("name", suite_names())
def test_a_float32_problem_has_a_mutant_in_half_precision(name: str) -> None:
    problem = suite_problem(name)
    assert ("half_precision" in mutants(problem)) == ("float32" in problem.tolerances)
    assert mutants(problem).keys() >= {"zeros", "identity", "one_wrong_element"}


def test_a_problem_without_a_seed_has_no_mutants() -> None:
    problem = suite_problem("softmax").model_copy(update={"seeds": ()})
    with pytest.raises(ProblemError, match="no seed"):
        mutants(problem)


def test_mutants_follow_sizes() -> None:
    assert mutants(load_problem("softmax", sizes={"n_rows": 8})).keys() == mutants(suite_problem("softmax")).keys()

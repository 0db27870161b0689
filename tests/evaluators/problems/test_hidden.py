"""Hidden workloads: what may vary does, what may not stays, and a reference's no is taken."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from db.errors import ProblemError
from db.records import Problem, Workload
from evaluators.problems import load_problem, suite_problem
from evaluators.problems.hidden import hidden_workloads, is_hidden, odd_near, varying_groups
from evaluators.problems.reference import Reference

SOURCE = """
import torch
import torch.nn as nn

rows = 8
columns = 64
groups = 4
eps = 1e-5
{said}

class Model(nn.Module):
    def forward(self, x):
        return x.reshape(rows, groups, columns // groups).sum(2) + eps


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


def problem_of(folder: Path, said: str) -> Problem:
    file = folder / "mine.py"
    file.write_text(SOURCE.format(said=said))
    return load_problem(str(file))


def test_what_differs_from_small_varies_and_nothing_else(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, 'SMALL = {"rows": 3, "columns": 16}')
    assert problem.varies == ("rows", "columns") and problem.layouts == ()
    found = hidden_workloads(problem, 5)
    assert [w.name for w in found] == ["hidden-1", "hidden-2"] and all(map(is_hidden, found))
    assert all((w.sizes["groups"], w.sizes["eps"]) == (4, 1e-5) for w in found)
    # four must divide the columns: odd ones are refused, and fewer sizes vary
    assert all(w.sizes["columns"] == 16 and w.sizes["rows"] % 2 == 1 for w in found)
    assert found[0].sizes["rows"] != 1 and found[1].sizes["rows"] == 1


def test_a_seed_draws_the_same_again_and_another_one_others() -> None:
    problem = suite_problem("matmul")
    one, again, other = (hidden_workloads(problem, seed) for seed in (1, 1, 2))
    assert one == again != other
    for workload in one + other:
        assert all(size % 2 == 1 for size in workload.sizes.values())
    assert [sum(size == 1 for size in w.sizes.values()) for w in one] == [0, 1]


def test_sizes_that_nobody_declared_are_fixed(tmp_path: Path) -> None:
    derived = problem_of(tmp_path, "")
    assert derived.varies == () and hidden_workloads(derived, 5) == []
    assert problem_of(tmp_path, 'VARIES = {"sizes"}\ncolumns = 1 << 19').varies == ("columns",)
    assert problem_of(tmp_path, 'SMALL = {"rows": 3, "columns": 16}\nFIXED = {"columns"}').varies == ("rows",)


def test_layouts_are_asked_for(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, 'SMALL = {"rows": 3}\nVARIES = {"strides", "alignment"}')
    assert problem.varies == ("rows",) and problem.layouts == ("transposed", "unaligned")
    transposed, unaligned = hidden_workloads(problem, 5)[-2:]
    assert transposed.sizes == unaligned.sizes == problem.small.sizes
    (plain,), (x,), (y,) = (Reference(problem, w).draw_inputs(3, "cpu") for w in (problem.small, transposed, unaligned))
    assert x.stride() == (1, 3) and torch.equal(x, plain)
    assert y.storage_offset() == 1 and y.stride() == plain.stride() and torch.equal(y, plain)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ('VARIES = {"shapes"}', "VARIES names 'shapes'"),
        ("VARIES = 3", "VARIES must be a set of words"),
        ('FIXED = {"depth"}', "FIXED names 'depth'"),
    ],
)
def test_a_word_that_means_nothing_is_told(tmp_path: Path, said: str, complaint: str) -> None:
    with pytest.raises(ProblemError, match=complaint):
        problem_of(tmp_path, said)


def test_what_varies_is_no_part_of_a_problem_s_name() -> None:
    problem = suite_problem("softmax")
    assert problem.model_copy(update={"varies": ()}).problem_id == problem.problem_id
    stored = problem.model_dump(mode="json", exclude={"varies", "layouts"})
    for workload in stored["workloads"]:
        del workload["layout"]
    old = Problem.model_validate(stored)  # as archives from before have it
    assert old.problem_id == problem.problem_id and hidden_workloads(old, 5) == []


def test_equal_sizes_stay_equal() -> None:
    sizes: list[dict[str, Any]] = [{"m": 64, "n": 64, "k": 32, "e": 1e-5}, {"m": 8, "n": 8, "k": 8, "e": 1e-5}]
    full, small = (Workload(name=n, role=n, sizes=s) for n, s in zip(("full", "small"), sizes, strict=True))
    problem = suite_problem("matmul").model_copy(update={"workloads": (full, small), "varies": ("m", "n", "k", "e")})
    assert varying_groups(problem) == [("m", "n"), ("k",)]


def test_odd_near_is_odd_and_near() -> None:
    rng = random.Random(0)
    for size in (1, 2, 3, 8, 15, 16, 17, 2501):
        found = {odd_near(size, (0.5, 1.0), rng) for _ in range(50)}
        assert all(value % 2 and value > 1 and value != size and size // 2 <= value <= size + 2 for value in found)

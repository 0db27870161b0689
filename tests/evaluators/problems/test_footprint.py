"""What a problem takes in memory, before it takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.errors import DeviceError
from db.records import Problem
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem, suite_problem
from evaluators.problems.footprint import Footprint, available_bytes, check_fits, footprint

FILE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones({weights}))

    def forward(self, x, y):
        {forward}


def get_inputs():
    return [torch.randn({rows}, 8), torch.randn(8).expand({rows}, 8)]


def get_init_inputs():
    return []
"""


def problem_of(folder: Path, *, rows: int = 16, weights: int = 8, forward: str = "return x + y.half()") -> Problem:
    file = folder / "mine.py"
    file.write_text(FILE.format(rows=rows, weights=weights, forward=forward))
    return load_problem(str(file))


def test_bytes_are_counted_by_shape_dtype_and_stride(tmp_path: Path) -> None:
    problem = problem_of(tmp_path)
    assert footprint(problem, problem.full) == Footprint(inputs=16 * 8 * 4 + 8 * 4, weights=8 * 4, outputs=16 * 8 * 4)


def test_a_forward_that_reads_values_is_counted_without_outputs(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, forward="return x if x.sum().item() > 0 else y")
    assert footprint(problem, problem.full).outputs == 0


def test_the_suite_fits() -> None:
    check_fits(suite_problem("layer_norm"), load_hardware("h100"))


def test_a_workload_that_the_target_cannot_hold_is_refused() -> None:
    problem = load_problem("softmax", sizes={"n_rows": 1_000_000})
    with pytest.raises(DeviceError, match=r"full workload takes 524.* GB, NVIDIA H100 has 85.9 GB") as caught:
        check_fits(problem, load_hardware("h100"))
    assert "--shape" in caught.value.hint


@pytest.mark.parametrize("large", ["rows", "weights"])
def test_what_this_machine_cannot_hold_is_refused_before_it_is_made(tmp_path: Path, large: str) -> None:
    """A file without module-level sizes has one workload, which runs here too."""
    n_elements = int(available_bytes() / 4) + 1
    problem = problem_of(tmp_path, **{large: n_elements // 8 if large == "rows" else n_elements})
    endless = load_hardware("b200").model_copy(update={"dram_bytes": 10**18})
    with pytest.raises(DeviceError, match=r"small workload takes .* this machine has"):
        check_fits(problem, endless)

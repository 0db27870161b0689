"""What a module can gain at most, before anything ran, against the shares that were measured on an H200."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.records import Problem
from evaluators.decomposition.classify import whole_only
from evaluators.decomposition.foresight import foreseen_shares
from evaluators.decomposition.work import other_share
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem
from tests.support.decompositions import decomposition_of

MODULES = Path(__file__).parents[3] / "benchmarks" / "models"
MEASURED = ["wide_mlp", "lstm", "linear_layernorm_gelu", "conv_epilogue", "gated_scan", "softmax_pool"]


def module_of(name: str) -> Problem:
    return load_problem(str(MODULES / f"{name}.py"))


def test_foreseen_shares_come_in_the_order_of_the_measured_ones() -> None:
    foreseen = {name: other_share(module_of(name), load_hardware("h200")) for name in MEASURED}
    measured = {name: measured_share(name) for name in MEASURED}
    assert all(foreseen[name] == pytest.approx(measured[name], abs=0.15) for name in MEASURED)
    ordered = sorted(MEASURED, key=lambda name: foreseen[name])
    assert set(ordered[:2]) == {"wide_mlp", "lstm"} == {name for name in MEASURED if not measured[name]}
    assert ordered[2:4] == sorted(MEASURED, key=lambda name: measured[name])[2:4]
    assert foreseen["gated_scan"] == foreseen["softmax_pool"] == 1.0


def measured_share(name: str) -> float:
    """Of the kernels that can be searched; 0 where the module falls back at once."""
    decomposition = decomposition_of(name)
    return 0.0 if whole_only(decomposition) else 1 - decomposition.extern_share


BROKEN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        print("to nobody")
        return {}

def get_inputs():
    return [torch.randn(1024, 1024)]

def get_init_inputs():
    return []
"""


def test_what_cannot_be_run_is_unknown_and_the_others_are_known(tmp_path: Path) -> None:
    problems = []
    endings = (("raises", "x @ missing"), ("ends", "__import__('sys').exit(3)"))
    for name, forward in (*endings, ("mixed", "torch.relu(x @ x)"), ("plain", "x + 1")):
        (tmp_path / f"{name}.py").write_text(BROKEN.format(forward))
        problems.append(load_problem(str(tmp_path / f"{name}.py")))
    raises, ends, mixed, plain = foreseen_shares(problems, load_hardware("h200"))
    assert raises is ends is None and plain == 1.0 and mixed is not None and 0.02 < mixed < 0.1
    assert foreseen_shares(problems[:1], load_hardware("h200"), deadline_s=0.01) == [None]


def test_each_module_is_named_when_it_is_looked_at(tmp_path: Path) -> None:
    """And not when all of them are known: the second one waits for whoever hears of it."""
    heard, names = tmp_path / "heard", ("first", "second")
    is_heard = f"__import__('os').path.exists({str(heard)!r})"
    waits = f"x + 1 if any({is_heard} or __import__('time').sleep(0.01) for _ in range(500)) else missing"
    for name, forward in zip(names, ("x + 1", waits), strict=True):
        (tmp_path / f"{name}.py").write_text(BROKEN.format(forward))
    looked: list[int] = []

    def look(index: int) -> None:
        looked.append(index)
        if index == 1:
            heard.touch()

    problems = [load_problem(str(tmp_path / f"{name}.py")) for name in names]
    assert foreseen_shares(problems, load_hardware("h200"), on_look=look) == [1.0, 1.0] and looked == [0, 1]

"""A model taken apart and put together again on a GPU, through the door that a run uses."""

from pathlib import Path

import pytest
import torch

from db.records import Candidate, DeviceKind, Gate, Lineage
from evaluators.decomposition.classify import RootCause, whole_only
from evaluators.decomposition.decompose import decompose, stitch
from evaluators.evaluator import EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from evaluators.problems.module import load_module
from evaluators.problems.reference import Reference

pytestmark = pytest.mark.gpu

BLOCK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))

    def forward(self, x):
        return torch.softmax(nn.functional.gelu(self.layers(x)) + x, dim=-1), x.sum(1)

def get_inputs():
    return [torch.randn(2048, 512)]

def get_init_inputs():
    return [512]
"""
LSTM = (
    BLOCK[: BLOCK.index("    def __init__")]
    + """
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 64)

    def forward(self, x):
        return self.lstm(x)[0]

def get_inputs():
    return [torch.randn(32, 8, 64)]

def get_init_inputs():
    return []
"""
)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_model_is_taken_apart_and_put_together(tmp_path: Path, replaced: bool) -> None:
    (tmp_path / "block.py").write_text(BLOCK)
    problem = load_problem(str(tmp_path / "block.py"))
    decomposition = decompose(problem, folder=tmp_path / "weights")
    assert decomposition.graph is not None, decomposition.reason
    assert decomposition.parts and 0.0 < decomposition.extern_share < 1.0
    assert any(part.reference == "aten" for part in decomposition.parts)
    single = {p.part.name: p.problem.seeds[0] for p in decomposition.parts if len(p.part.kernels) == 1}
    source = stitch(decomposition, single if replaced else {})
    reference = Reference(problem, problem.full)
    inputs = reference.draw_inputs(7, "cuda")
    model = load_module(source, "problem_delivered").ModelNew(512)
    model.load_state_dict(reference.weights("cuda"))
    with torch.no_grad():
        answers = model.cuda()(*inputs)
    for one, other in zip(answers, reference.expected(inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()


CONVOLUTION = (
    BLOCK[: BLOCK.index("    def __init__")]
    + """
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)

    def forward(self, x):
        return nn.functional.max_pool2d(torch.tanh(self.norm(self.convolution(x))), 2)

def get_inputs():
    return [torch.randn(16, 32, 64, 64)]

def get_init_inputs():
    return []
"""
)


def test_what_comes_after_a_convolution_with_a_bias_has_a_reference_in_aten_terms(tmp_path: Path) -> None:
    (tmp_path / "convolution.py").write_text(CONVOLUTION)
    decomposition = decompose(load_problem(str(tmp_path / "convolution.py")), folder=tmp_path / "weights")
    assert decomposition.graph is not None, decomposition.reason
    (call,) = [step for step in decomposition.graph.output.externs if "convolution" in step.target]
    after = [p for p in decomposition.parts if any(tensor.name == call.result for tensor in p.part.inputs)]
    assert "bias=None" in call.text and after and {p.reference for p in after} == {"aten"}
    assert all(p.efficiency is not None and 0.0 < p.efficiency <= 1.0 for p in decomposition.parts)


def test_what_a_library_does_alone_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "lstm.py").write_text(LSTM)
    found = whole_only(decompose(load_problem(str(tmp_path / "lstm.py")), folder=tmp_path / "weights"))
    assert found is not None and found[0] in (RootCause.NO_KERNELS, RootCause.NOT_DECOMPOSED)


PARTIAL_SUMS = """
import torch
import triton
import triton.language as tl

n_rows = 1024


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    total = tl.full((BLOCK,), 0, tl.float32)
    for start in tl.range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + part * n + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + part, tl.sum(total, 0))


def kernel_function(x):
    out = torch.empty_strided((n_rows, 4), (4, 1), dtype=torch.float32, device=x.device)
    sum_kernel[(n_rows * 4,)](x, out, 2048, BLOCK=512)
    return out


def get_inputs():
    return [torch.randn(n_rows, 8192)]
"""


def test_a_kernel_that_fixes_its_types_is_judged_without_float64(tmp_path: Path) -> None:
    """As a part without a piece of the graph: Triton cannot compile its kernel for float64."""
    (tmp_path / "part.py").write_text(PARTIAL_SUMS)
    problem = load_problem(str(tmp_path / "part.py"))
    candidate = Candidate(
        candidate_id="t-0-000001",
        run_id="t",
        problem_id=problem.problem_id,
        island=0,
        source=problem.seeds[0],
        entry_point=problem.entry_point,
        lineage=Lineage(operator="seed"),
    )
    with open_evaluator(problem, EvaluatorSettings(), DeviceKind.CUDA) as evaluator:
        verdict = evaluator.judge(candidate)
    assert verdict.is_correct and verdict.error_ratio is None, verdict.reason
    assert next(gate for gate in verdict.gates if gate.gate is Gate.MODEL).evidence["n_outputs"] == 0

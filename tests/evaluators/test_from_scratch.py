"""A problem without any program, judged without a GPU: the eager reference is the baseline, first programs are held
to more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from db.errors import SeedError
from db.records import Candidate, DeviceKind, Gate, Lineage, Outcome, PrecisionClass, Problem, TorchOp, Verdict
from evaluators.capture.fake_device import fake_device
from evaluators.capture.tensors import AddressSpace
from evaluators.capture.torch_ops import OpRecorder
from evaluators.evaluator import EvaluatorSettings
from evaluators.modelled import ModelledEvaluator
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem

SETTINGS = EvaluatorSettings(target="h200")
MB = 2**20

REFERENCE = """
import torch
import torch.nn as nn

n_rows = 4096

SMALL = {"n_rows": 8}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.product = nn.Linear(256, 256, bias=False)

    def forward(self, x, y):
        return FORWARD


def get_inputs():
    return [torch.randn(n_rows, 256), torch.randn(n_rows, 256)]


def get_init_inputs():
    return []
"""

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2.0 + ERROR, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def problem_of(folder: Path, forward: str) -> Problem:
    (folder / "mine.py").write_text(REFERENCE.replace("FORWARD", forward))
    return load_problem(str(folder / "mine.py"))


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelledEvaluator]:
    # what is turned into float32 is not computed in float64
    problem = problem_of(tmp_path_factory.mktemp("problem"), "x.float() * 2 + y.float().relu() * 0")
    with ModelledEvaluator(problem, SETTINGS) as opened:
        yield opened


def judge(evaluator: ModelledEvaluator, error: float, lineage: Lineage) -> Verdict:
    candidate = Candidate(
        candidate_id="t-0-0",
        run_id="t",
        problem_id=evaluator.problem.problem_id,
        island=0,
        source=PROGRAM.replace("ERROR", repr(error)),
        entry_point=evaluator.problem.entry_point,
        lineage=lineage,
    )
    return evaluator.judge(candidate)


SYNTHESIZED = Lineage(operator="synthesize", model="openai/scripted")


def test_the_baseline_is_the_eager_reference(evaluator: ModelledEvaluator) -> None:
    baseline, hardware = evaluator.baseline, evaluator.hardware
    assert baseline.name == "eager" and baseline.method == "model" and baseline.times[0].name == "eager"
    # two products with a number and a relu read and write 4 MB each, the sum reads 8 MB and writes 4
    moved_us = (3 * 8 + 12) * MB / hardware.dram_gb_s / 1e3
    assert baseline.device_us == pytest.approx(4 * hardware.launch_us + moved_us)


def test_a_right_first_program_says_by_which_rule_and_beats_the_reference(evaluator: ModelledEvaluator) -> None:
    verdict = judge(evaluator, 0.0, SYNTHESIZED)
    assert verdict.is_correct and verdict.replaces_baseline, verdict.reason
    (model,) = [gate for gate in verdict.gates if gate.gate is Gate.MODEL]
    assert model.evidence["first_program"] == {"bound": 1e-4, "n_within": 4, "n_as_exact_as_the_reference": 0}
    assert verdict.latency is not None and verdict.latency.baseline_name == "eager"


def test_a_first_program_is_refused_where_another_passes(evaluator: ModelledEvaluator) -> None:
    edit = judge(evaluator, 5e-4, Lineage(operator="mutate", model="openai/scripted", parents=("1",)))
    assert edit.is_correct and "first_program" not in str(edit.gates)
    assert judge(evaluator, 5e-4, Lineage(operator="seed")).is_correct
    first = judge(evaluator, 5e-4, SYNTHESIZED)
    assert first.outcome is Outcome.FAILED and first.gates[-1].gate is Gate.MODEL
    assert "a first program must be within rtol 0.0001" in first.reason and "seed 0" in first.reason


def test_products_take_their_time_in_either_precision(evaluator: ModelledEvaluator) -> None:
    n_flops = 2.0 * 4096**3
    op = TorchOp(name="aten.mm.default", moved_bytes=3 * 64 * MB, flops={"fp32": n_flops})
    capture = evaluator._preparer.capture_reference().model_copy(update={"torch_ops": (op,)})
    tflops, launch_us = evaluator.hardware.tflops, evaluator.hardware.launch_us
    for precision, kind in ((PrecisionClass.REFERENCE, "fp32"), (PrecisionClass.RELAXED, "tf32")):
        modelled = evaluator._modeller.model_reference(capture, precision)
        assert modelled.device_us == pytest.approx(launch_us + n_flops / tflops[kind] / 1e6)


def test_a_reference_that_does_nothing_or_depends_on_values_has_no_modelled_latency(
    evaluator: ModelledEvaluator, tmp_path: Path
) -> None:
    capture = evaluator._preparer.capture_reference()
    with pytest.raises(ValueError, match="takes time"):
        evaluator._modeller.model_reference(capture.model_copy(update={"torch_ops": ()}), PrecisionClass.REFERENCE)
    with pytest.raises(SeedError, match=r"cannot be modelled: .*line 16 \(return x\[x > 0\]\)") as caught:
        open_evaluator(problem_of(tmp_path, "x[x > 0]"), SETTINGS, DeviceKind.CPU)
    assert "--seed-program" in caught.value.hint


def test_operations_that_compute_are_counted(evaluator: ModelledEvaluator) -> None:
    addresses = AddressSpace()
    with fake_device(evaluator.hardware, addresses), OpRecorder(addresses, lambda: 0) as recorded:
        x = torch.empty(64, 32, device="cuda", dtype=torch.float16)
        functional.linear(x, torch.empty(16, 32, device="cuda", dtype=torch.float16))
        functional.conv1d(torch.empty(2, 3, 10, device="cuda"), torch.empty(4, 3, 3, device="cuda"))
        q = torch.empty(2, 4, 8, 16, device="cuda", dtype=torch.bfloat16)
        functional.scaled_dot_product_attention(q, q, q)
        x.exp()
    counted = [op.flops for op in recorded.operations]
    assert counted[0] == {"fp16": 2 * 64 * 32 * 16} and counted[-1] == {}
    assert {"fp32": 2 * 2 * 4 * 8 * 3 * 3} in counted
    assert {"bf16": 2 * 2 * (2 * 4) * 8 * 8 * 16} in counted

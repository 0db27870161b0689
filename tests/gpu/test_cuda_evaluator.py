"""The whole cascade on a GPU: honest, wrong and hostile programs, one evaluator for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from db.records import (
    Candidate,
    DeviceKind,
    EntryPoint,
    Gate,
    LatencyKind,
    Lineage,
    Outcome,
    PrecisionClass,
    Problem,
    Tolerance,
    Verdict,
    Workload,
)
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator

pytestmark = pytest.mark.gpu

SEED_LINEAGE = Lineage(operator="seed")

SOFTMAX = """
import torch
import torch.nn as nn

rows = 2048
cols = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + row * n + offsets, mask=mask, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * n + offsets, powers / tl.sum(powers, 0), mask=mask)


@triton.jit
def endless_kernel(x, y):
    i = 0
    while i >= 0:
        i = (i + tl.load(x + i % 2).to(tl.int32)) % 1000
    tl.store(y, i)


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        BEFORE
        y = torch.empty_like(x)
        n = x.shape[1]
        softmax_kernel[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
        AFTER
        return y
"""
counter = itertools.count()


def softmax_with(before: str = "pass", after: str = "pass") -> str:
    return KERNEL.replace("BEFORE", before).replace("AFTER", after)


def problem_of(source: str, seed: str, **small: int) -> Problem:
    workloads = (Workload(name="full", role="full"), Workload(name="small", role="small", sizes=dict(small)))
    return Problem(name="p", kind="kernelbench", source=source, workloads=workloads, seeds=(seed,))


def judge(evaluator: Evaluator, problem: Problem, source: str, lineage: Lineage = SEED_LINEAGE) -> Verdict:
    candidate = Candidate(
        candidate_id=f"t-0-{next(counter):06d}",
        run_id="t",
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=EntryPoint.MODEL,
        lineage=lineage,
    )
    return evaluator.judge(candidate)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(SOFTMAX, softmax_with(), rows=5, cols=301)


@pytest.fixture(scope="module")
def evaluator(problem: Problem) -> Iterator[Evaluator]:
    with open_evaluator(problem, EvaluatorSettings(n_concurrent_sessions=2), DeviceKind.CUDA) as opened:
        yield opened


@pytest.fixture(autouse=True)
def next_is_judged_normally(evaluator: Evaluator, problem: Problem) -> Iterator[None]:
    """Whatever a test did, an honest program passes right after it."""
    yield
    verdict = judge(evaluator, problem, softmax_with())
    assert verdict.is_correct, verdict.reason


def test_only_the_baselines_that_are_asked_for_are_timed(problem: Problem) -> None:
    with open_evaluator(problem, EvaluatorSettings(baselines=("compile",)), DeviceKind.CUDA) as opened:
        baseline = opened.report().baseline
    assert baseline.name == "compile" and [time.name for time in baseline.times] == ["compile"]


def test_an_honest_program_is_correct_and_timed(evaluator: Evaluator, problem: Problem) -> None:
    verdict = judge(evaluator, problem, softmax_with())
    assert verdict.is_correct and verdict.latency is not None, verdict.reason
    latency = verdict.latency
    assert latency.kind is LatencyKind.MEASURED and latency.method == "graph"
    assert latency.low_us <= latency.device_us <= latency.high_us
    assert latency.floor_us is not None and latency.device_us > 0.5 * latency.floor_us
    assert verdict.profile is not None and verdict.fingerprint
    assert verdict.error_ratio is None or verdict.error_ratio <= 10
    assert {"prepare", "load", "correctness", "timing"} <= set(verdict.seconds)


def test_a_program_written_from_scratch_is_looked_at_more_closely(evaluator: Evaluator, problem: Problem) -> None:
    verdict = judge(evaluator, problem, softmax_with(), Lineage(operator="synthesize", model="a model"))
    (model,) = [gate for gate in verdict.gates if gate.gate is Gate.MODEL]
    rule = model.evidence["first_program"]  # three seeds of the small workload, one of the full one
    assert verdict.is_correct and rule["n_within"] + rule["n_as_exact_as_the_reference"] == 4


def test_the_baseline_is_the_fastest_of_three(evaluator: Evaluator) -> None:
    report = evaluator.baseline
    times = {t.name: t.device_us for t in report.times}
    assert set(times) == {"eager", "compile", "max-autotune"}
    assert report.device_us == min(us for us in times.values() if us is not None)


WRONG = {
    "zeros": (("return torch.zeros_like(x)", "pass"), Gate.CORRECTNESS, "outside the tolerance"),
    "identity": (("return x", "pass"), Gate.CORRECTNESS, "outside the tolerance"),
    "nothing written": (("return torch.empty_like(x)", "pass"), Gate.CORRECTNESS, "outside the tolerance"),
    "one wrong element": (("pass", "y[-1, -1] += 0.01"), Gate.CORRECTNESS, "1 of"),
    "other dtype": (("pass", "y = y.half()"), Gate.CORRECTNESS, "float16"),
    "other shape": (("pass", "y = y[:, :-1]"), Gate.CORRECTNESS, "shape"),
    "parameter": (("pass", "y = nn.Parameter(y, requires_grad=False)"), Gate.CORRECTNESS, "Parameter"),
    "two outputs": (("pass", "y = (y, y)"), Gate.CORRECTNESS, "2 outputs"),
    "writes its input": (("pass", "x.zero_()"), Gate.INTEGRITY, "input 0 was changed"),
    "raises": (("pass", "raise RuntimeError('no luck today')"), None, "no luck today"),
    "ends": (("__import__('os')._exit(0)", "pass"), None, ""),
    "endless kernel": (
        ("endless_kernel[(1,)](torch.zeros_like(x), torch.empty_like(x))", "pass"),
        Gate.CORRECTNESS,
        "no answer",
    ),
    "illegal access": (
        ("softmax_kernel[(1 << 20,)](x, x, 1 << 20, BLOCK=1024)", "pass"),
        None,
        "",
    ),
    "out of memory": (("z = [torch.empty(1 << 36, device=x.device) for _ in range(64)]", "pass"), None, "memory"),
    "stale memory": (
        ("self.calls += 1\n        if self.calls > 8: return torch.empty_like(x)", "pass"),
        None,
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_and_hostile_programs_are_refused_with_a_reason(
    name: str, evaluator: Evaluator, problem: Problem
) -> None:
    (before, after), gate, words = WRONG[name]
    verdict = judge(evaluator, problem, softmax_with(before, after))
    assert verdict.outcome is Outcome.FAILED and verdict.latency is None
    # the host-code policy may refuse first what the device would refuse later
    assert gate is None or verdict.gates[-1].gate in (gate, Gate.STATIC), verdict.reason
    if verdict.gates[-1].gate is gate:
        assert words in verdict.reason


PRODUCT = """
import torch
import torch.nn as nn

n = 1024


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(n, n), torch.randn(n, n)]


def get_init_inputs():
    return []
"""

PRODUCT_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, c, n, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ks = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK_K):
        k = start + ks
        left = tl.load(a + rows[:, None] * n + k[None, :], mask=(rows[:, None] < n) & (k[None, :] < n), other=0.0)
        right = tl.load(b + k[:, None] * n + cols[None, :], mask=(k[:, None] < n) & (cols[None, :] < n), other=0.0)
        total += tl.dot(left, right, input_precision="PRECISION")
    tl.store(c + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < n) & (cols[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        n = a.shape[0]
        grid = (triton.cdiv(n, 64), triton.cdiv(n, 64))
        product_kernel[grid](a, b, c, n, BLOCK=64, BLOCK_K=32, num_warps=4)
        return c
"""


@pytest.fixture(scope="module")
def product() -> Problem:
    # as loose as a problem may be at these sizes: see `problems.bounds`
    loose = problem_of(PRODUCT, PRODUCT_KERNEL.replace("PRECISION", "ieee"), n=257)
    return loose.model_copy(update={"tolerances": {"float32": Tolerance(rtol=0.5, atol=0.1)}})


@pytest.mark.parametrize("wanted", list(PrecisionClass))
def test_tf32_counts_only_where_relaxed_is_asked_for(wanted: PrecisionClass, product: Problem) -> None:
    product = Problem.model_validate(product.model_dump(mode="json"))
    settings = EvaluatorSettings(n_concurrent_sessions=2, precision=wanted)
    with open_evaluator(product, settings, DeviceKind.CUDA) as evaluator:
        exact = judge(evaluator, product, PRODUCT_KERNEL.replace("PRECISION", "ieee"))
        rough = judge(evaluator, product, PRODUCT_KERNEL.replace("PRECISION", "tf32"))
    assert exact.is_correct, exact.reason
    assert exact.error_ratio is not None and exact.error_ratio <= 10
    assert rough.error_ratio is not None and rough.error_ratio > 10
    if wanted is PrecisionClass.RELAXED:
        assert rough.is_correct, rough.reason
    else:
        assert rough.gates[-1].gate is Gate.MODEL and "precision class relaxed" in rough.reason


def test_a_function_is_its_own_baseline() -> None:
    source = softmax_with().replace(
        "class ModelNew(nn.Module):\n    calls = 0\n\n    def forward(self, x):", "def kernel_function(x):"
    )
    body = source[source.index("def kernel_function") :].replace("\n        ", "\n    ")
    source = source[: source.index("def kernel_function")] + body
    source += "\n\nrows = 2048\ncols = 4096\n\n\ndef get_inputs():\n    return [torch.randn(rows, cols)]\n"
    workloads = (
        Workload(name="full", role="full"),
        Workload(name="small", role="small", sizes={"rows": 3, "cols": 301}),
    )
    problem = Problem(name="own", kind="triton", source=source, workloads=workloads, seeds=(source,))
    with open_evaluator(problem, EvaluatorSettings(n_concurrent_sessions=1), DeviceKind.CUDA) as evaluator:
        candidate = Candidate(
            candidate_id="own-0-000000",
            run_id="own",
            problem_id=problem.problem_id,
            island=0,
            source=source,
            entry_point=EntryPoint.FUNCTION,
            lineage=Lineage(operator="seed"),
        )
        verdict = evaluator.judge(candidate)
    assert verdict.is_correct and verdict.latency is not None, verdict.reason
    assert verdict.latency.baseline_name == "seed" and not verdict.replaces_baseline
    assert verdict.latency.speedup == pytest.approx(1.0, abs=0.05)


def test_nothing_of_a_child_stays_on_the_gpu(evaluator: Evaluator, problem: Problem) -> None:
    free_before = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        assert judge(evaluator, problem, softmax_with()).is_correct
    assert torch.cuda.mem_get_info()[0] > free_before - 2 * 2**30

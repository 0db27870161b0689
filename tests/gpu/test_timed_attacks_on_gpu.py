"""Programs that do less when they are timed, or say so, before the judge that times: reading could stop most of them.

Candidates go to the GPU unread (`Prepared` without gates), so that what runs there has to stop them by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from db.records import Candidate, DeviceKind, EntryPoint, Gate, Lineage, Outcome, Problem, Verdict, Workload
from evaluators.evaluator import Evaluator, EvaluatorSettings, Prepared
from evaluators.opening import open_evaluator

pytestmark = pytest.mark.gpu

REFERENCE = """
import torch
import torch.nn as nn

rows = 16384
cols = 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1) + 1)
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.softmax(x, dim=1) * self.scale + 1


def get_inputs():
    x = torch.randn(rows, cols)
    x[0] = x[0, 0].clone()
    return [x]


def get_init_inputs():
    return []
"""

PROGRAM = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

BEFORE


@triton.jit
def kernel(x_ptr, scale_ptr, count_ptr, kept_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n_left = n_cols
    FIRST
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n_left
    x = tl.load(x_ptr + row * n_cols + offsets, mask=mask, other=float("-inf"))
    powers = tl.exp(x - tl.max(x, 0))
    result = powers / tl.sum(powers, 0) * tl.load(scale_ptr) + 1
    tl.store(out_ptr + WHERE, result, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))
        self.unused = nn.Parameter(torch.zeros(1))
        self.register_buffer("kept", torch.zeros(256 * 16384 * 4))

    def forward(self, x):
        HOST
        out = MEMORY
        block = triton.next_power_of_2(x.shape[1])
        kernel[(x.shape[0],)](
            x, self.scale, self.unused, self.kept, out, x.shape[0], x.shape[1], BLOCK=block, num_warps=4
        )
        return out
"""
PLAIN = {"BEFORE": "", "FIRST": "", "HOST": "", "MEMORY": "torch.empty_like(x)", "WHERE": "row * n_cols + offsets"}

ONE_SET_IN_TWO = "n_left = tl.where((x_ptr.to(tl.int64) >> 26) % 2 == 1, 0, n_cols)"
STALE = """place = (out_ptr.to(tl.int64) >> 24) % 256
    kept = kept_ptr + (place * 16384 + row) * 4 + tl.arange(0, 4)
    sample = tl.load(x_ptr + row * n_cols + tl.arange(0, 4))
    n_other = tl.sum((tl.load(kept) != sample).to(tl.int32), axis=0)
    tl.store(kept, sample)
    n_left = tl.where((n_other == 0) & (row % 5 == 0), 0, n_cols)"""
ROW_0_ALONE = "n_left = tl.where(tl.load(x_ptr) == tl.load(x_ptr + 1), n_cols, 0)"
COUNTS_IN_A_WEIGHT = "tl.store(count_ptr, tl.load(count_ptr) + 1, mask=row == 0)"
BEHIND_THE_END = "tl.store(x_ptr + n_rows * n_cols, 0.5, mask=row == 0)"
# first looks ask for several replays at once, what is compared with the baseline for one at a time
CLAIMS_A_TENTH = """import evaluators.timing as timing

honest = timing._timed_each


def lying(*arguments):
    found = honest(*arguments)
    return found if len(found) > 1 else [seconds / 10 for seconds in found]


timing._timed_each = lying"""
TRANSPOSED = {"MEMORY": "torch.empty(x.shape[::-1], device=x.device).t()", "WHERE": "row + offsets * n_rows"}
FLAG = "torch.backends.cudnn.benchmark = True"
THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"

ATTACKS: dict[str, tuple[dict[str, str], str]] = {
    "skips one set": ({"FIRST": ONE_SET_IN_TWO}, "outside the tolerance"),
    "keeps a fifth of its answers": ({"FIRST": STALE}, "keeps what it computed before"),
    "truthful first, then claims a tenth": ({"BEFORE": CLAIMS_A_TENTH}, "cannot be trusted"),
    "counts in a weight": ({"FIRST": COUNTS_IN_A_WEIGHT}, "weight unused was changed"),
    "writes behind the end": ({"FIRST": BEHIND_THE_END}, "behind the end"),
    "transposed": (TRANSPOSED, "strides"),
    "sets a flag": ({"HOST": FLAG}, "cudnn.benchmark was False"),
    "starts a thread": ({"HOST": THREAD}, "threads more than before"),
}
counter = itertools.count()


def program_with(changes: dict[str, str]) -> str:
    source = PROGRAM
    for name, text in {**PLAIN, **changes}.items():
        source = source.replace(name, text)
    return source


@pytest.fixture(scope="module")
def problem() -> Problem:
    workloads = (
        Workload(name="full", role="full"),
        Workload(name="small", role="small", sizes={"rows": 5, "cols": 301}),
    )
    return Problem(name="p", kind="kernelbench", source=REFERENCE, workloads=workloads, seeds=(program_with({}),))


@pytest.fixture(scope="module")
def evaluator(problem: Problem) -> Iterator[Evaluator]:
    settings = EvaluatorSettings(n_concurrent_sessions=1, baselines=("eager",))  # three kernels: all of ours are faster
    with open_evaluator(problem, settings, DeviceKind.CUDA) as opened:
        yield opened


def judged(evaluator: Evaluator, problem: Problem, changes: dict[str, str]) -> Verdict:
    candidate = Candidate(
        candidate_id=f"t-0-{next(counter):06d}",
        run_id="t",
        problem_id=problem.problem_id,
        island=0,
        source=program_with(changes),
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )
    return evaluator.evaluate(Prepared(candidate=candidate))


def test_the_honest_one_is_faster_than_the_baseline(evaluator: Evaluator, problem: Problem) -> None:
    verdict = judged(evaluator, problem, {})
    assert verdict.is_correct and verdict.replaces_baseline, verdict.reason


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(name: str, evaluator: Evaluator, problem: Problem) -> None:
    changes, words = ATTACKS[name]
    verdict = judged(evaluator, problem, changes)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.gates[-1].gate in (Gate.CORRECTNESS, Gate.INTEGRITY) and words in verdict.reason, verdict.reason


def test_work_only_where_row_0_is_row_0_is_work_everywhere(evaluator: Evaluator, problem: Problem) -> None:
    honest, wary = judged(evaluator, problem, {}), judged(evaluator, problem, {"FIRST": ROW_0_ALONE})
    assert honest.latency is not None and wary.latency is not None, wary.reason
    assert wary.latency.device_us > 0.95 * honest.latency.device_us


def test_honest_programs_are_not_refused_again_and_again(evaluator: Evaluator, problem: Problem) -> None:
    verdicts = [judged(evaluator, problem, {}) for _ in range(10)]
    assert [v.reason for v in verdicts if not v.is_correct] == []

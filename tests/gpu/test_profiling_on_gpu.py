"""Nsight Compute in the sandbox, on a GPU: a batch of softmaxes, of which three fail in their own ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from db.profile import KernelKind
from db.records import (
    Candidate,
    DeviceKind,
    EntryPoint,
    Lineage,
    Problem,
    Profile,
    Workload,
)
from evaluators.cuda import CudaEvaluator
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import suite_problem
from evaluators.profiling.ncu import find_ncu, is_profiling_restricted
from evolve.profiling import profile_file

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_ncu() is None or is_profiling_restricted(), reason="no counters for us here"),
]

REFERENCE = """
import torch
import torch.nn as nn

rows = 4096
cols = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""

PROGRAM = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_max(x, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + offsets, mask=offsets < n, other=float("-inf"))
    tl.store(m + row, tl.max(values, 0))


@triton.jit
def softmax_rows(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + row * n + offsets, mask=mask, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * n + offsets, powers / tl.sum(powers, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        BEFORE
        y = torch.empty_like(x)
        n = x.shape[1]
        softmax_rows[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=WARPS)
        return y
"""
TWICE = """m = torch.empty(x.shape[0], device=x.device)
        rows_max[(x.shape[0],)](x, m, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))"""

# reads 4 TiB behind its input and writes nothing there: what is mapped nearby must not decide which fault it is
FAR = """m = torch.empty(2, device=x.device)
        rows_max[(2,)](x, m, 1 << 40, BLOCK=1024)"""


def softmax(warps: int, before: str = "pass") -> str:
    return PROGRAM.replace("BEFORE", before).replace("WARPS", str(warps))


PROBLEM = Problem(
    name="softmax",
    kind="kernelbench",
    source=REFERENCE,
    workloads=(
        Workload(name="full", role="full"),
        Workload(name="small", role="small", sizes={"rows": 5, "cols": 301}),
    ),
    seeds=(softmax(4),),
)
RAISES, ENDS, POISONS = 4, 7, 10
FAILING = (RAISES, ENDS, POISONS)
SOURCES = [
    *(softmax(1), softmax(2), softmax(4), softmax(8)),
    softmax(8, "raise ValueError('not under a profiler')"),
    *(softmax(16), softmax(4, TWICE)),
    softmax(8, "__import__('os')._exit(7)"),
    *(softmax(32), softmax(8)),
    softmax(8, FAR),
    softmax(4),
]


def candidates(sources: list[str]) -> list[Candidate]:
    return [
        Candidate(
            candidate_id=f"p-0-{n:06d}",
            run_id="p",
            problem_id=PROBLEM.problem_id,
            island=0,
            source=source,
            entry_point=EntryPoint.MODEL,
            lineage=Lineage(operator="seed"),
        )
        for n, source in enumerate(sources)
    ]


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with open_evaluator(PROBLEM, EvaluatorSettings(n_concurrent_sessions=2), DeviceKind.CUDA) as opened:
        if opened.isolation != "namespaces":
            pytest.skip("this machine allows no namespaces")
        yield opened


@pytest.fixture(scope="module")
def batch(evaluator: Evaluator) -> list[Profile]:
    provisional = [Profile(source="compiled", memory_sol_pct=11.0)] * len(SOURCES)
    start = time.perf_counter()
    found = evaluator.profile(candidates(SOURCES), provisional)
    print(f"\n{len(SOURCES)} programs profiled in {time.perf_counter() - start:.1f} s")
    for profile in found:
        print(profile.model_dump(exclude={"rules", "kernels", "stalls"}, exclude_defaults=True))
        print("  stalls", [(s.reason, s.cycles) for s in profile.stalls[:4]])
        print("  rules", [(r.name, r.speedup_pct, r.scope) for r in profile.rules[:4]])
    return found


def honest(batch: list[Profile]) -> list[Profile]:
    return [profile for n, profile in enumerate(batch) if n not in FAILING]


def test_every_honest_program_of_a_batch_has_counters(batch: list[Profile]) -> None:
    assert [p.source for p in honest(batch)] == ["ncu"] * 9, [p.note for p in batch]


def test_figures_are_plausible(batch: list[Profile]) -> None:
    for profile in honest(batch):
        assert 30 < profile.memory_sol_pct <= 100 and 3 < profile.compute_sol_pct <= 100
        assert profile.duration_us is not None and 10 < profile.duration_us < 500
        assert profile.n_registers is not None and 8 <= profile.n_registers <= 255
        assert profile.occupancy is not None and profile.achieved_occupancy is not None
        assert 0 < profile.achieved_occupancy <= profile.occupancy + 0.05
        assert profile.dram_read_bytes is not None and profile.dram_read_bytes > 0.9 * 4096 * 4096 * 4
        assert profile.dram_gb_s is not None and 500 < profile.dram_gb_s < 10_000
        assert profile.tensor_pct == 0 and profile.issue_pct is not None and profile.waves_per_sm is not None
        assert len(profile.stalls) > 3 and sum(s.share for s in profile.stalls) <= 1.001
        assert any(r.speedup_pct is not None for r in profile.rules)


def test_each_program_has_its_own_kernels_in_launch_order(batch: list[Profile]) -> None:
    single = [n for n in range(len(SOURCES)) if n not in (*FAILING, 6)]
    assert [[k.n_threads for k in batch[n].kernels] for n in single] == [
        *([32], [64], [128], [256], [512], [1024], [256], [128])
    ]
    assert [k.kernel for k in batch[6].kernels] == ["rows_max", "softmax_rows"]
    assert batch[6].dominant == "softmax_rows"
    assert all(k.grid == (4096, 1, 1) for p in honest(batch) for k in p.kernels)


def test_who_has_no_counters_keeps_the_profile_and_is_told_why(batch: list[Profile]) -> None:
    notes = [batch[n].note for n in FAILING]
    assert [batch[n].source for n in FAILING] == ["compiled"] * 3, notes
    assert [batch[n].memory_sol_pct for n in FAILING] == [11.0] * 3
    assert "failed under the profiler: ValueError: not under a profiler" in batch[RAISES].note
    assert "ended the process" in batch[ENDS].note
    faults = ("ended the process", "CUDA error", "[CUDA]")  # the driver, torch or Triton: whoever hears of it first
    assert any(words in batch[POISONS].note for words in faults), batch[POISONS].note


def test_the_gpu_is_lent_for_less_than_two_seconds_a_program(evaluator: Evaluator) -> None:
    assert isinstance(evaluator, CudaEvaluator)
    gpu = evaluator._gpu
    others: list[float] = []
    done = threading.Event()

    def keep_asking() -> None:
        while not done.is_set():
            start = time.perf_counter()
            with gpu:
                others.append(time.perf_counter() - start)
            time.sleep(0.01)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    sources = [softmax(warps) for warps in (1, 2, 4, 8, 16, 32, 8, 4)] * 2
    found = evaluator.profile(candidates(sources))
    done.set()
    asking.join()
    print(f"\nthe longest wait for the GPU beside {len(sources)} programs: {max(others):.2f} s")
    assert [p.source for p in found] == ["ncu"] * 16, [p.note for p in found]
    assert 0 < max(others) < 2.0 * len(sources)


def test_programs_are_judged_while_others_are_profiled(evaluator: Evaluator) -> None:
    found: list[Profile] = []
    profiling = threading.Thread(target=lambda: found.extend(evaluator.profile(candidates([softmax(8)]))))
    profiling.start()
    verdicts = [evaluator.judge(candidate) for candidate in candidates([softmax(4)] * 4)]
    profiling.join()
    assert all(v.is_correct for v in verdicts), [v.reason for v in verdicts]
    assert found[0].source == "ncu", found[0].note
    assert torch.cuda.mem_get_info()[0] > 0


@pytest.mark.parametrize(("name", "kind"), [("cross_entropy", KernelKind.REDUCTION), ("matmul", KernelKind.MATMUL)])
def test_the_command_profiles_a_program_of_the_suite(name: str, kind: KernelKind, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(suite_problem(name).seeds[0])
    start = time.perf_counter()
    result = profile_file(file, name)
    print(f"\n{name}: {time.perf_counter() - start:.1f} s: {result.report.limit} [{result.report.state.key}]")
    assert result.profile.source == "ncu", result.profile.note
    assert result.report.source == "ncu" and result.report.state.kernel_kind is kind
    assert result.report.techniques and result.report.state.architecture.startswith("sm_")
    if kind is KernelKind.MATMUL:
        assert result.profile.tensor_pct is not None and result.profile.tensor_pct > 10

"""A against A: the same kernel as candidate and as baseline, judged again and again. How often is it called faster?

    python -m benchmarks.a_against_a [--pairs 50] [--out benchmarks/results/a_against_a.json]

Needs a CUDA device. Every pair is checked and timed in a child of its own, as candidates are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from db.records import Candidate, DeviceKind, EntryPoint, Lineage, Problem, Verdict, Workload
from evaluators.evaluator import Evaluator, EvaluatorSettings, Prepared
from evaluators.opening import open_evaluator
from evaluators.versions import software_versions

SOFTMAX = """
import torch
import triton
import triton.language as tl

rows = 64
cols = 256


@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + row * n + offsets, mask=mask, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * n + offsets, powers / tl.sum(powers, 0), mask=mask)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.shape[1]
    softmax_kernel[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y


def get_inputs():
    return [torch.randn(rows, cols)]
"""
SHAPES = {"2 us": (64, 256), "10 us": (3072, 1024), "70 us": (8192, 4096), "500 us": (65536, 4096)}


def make_problem(rows: int, cols: int) -> Problem:
    workloads = (
        Workload(name="full", role="full", sizes={"rows": rows, "cols": cols}),
        Workload(name="small", role="small", sizes={"rows": 3, "cols": 301}),
    )
    return Problem(name=f"softmax_{rows}_{cols}", kind="triton", source=SOFTMAX, workloads=workloads, seeds=(SOFTMAX,))


def judge_pairs(evaluator: Evaluator, problem: Problem, n_pairs: int, n_at_once: int) -> list[Verdict]:
    """Every pair in a child of its own; preparation on the CPU is left out, because it times nothing."""
    candidates = [
        Candidate(
            candidate_id=f"a-0-{i:06d}",
            run_id="a",
            problem_id=problem.problem_id,
            island=0,
            source=SOFTMAX,
            entry_point=EntryPoint.FUNCTION,
            lineage=Lineage(operator="seed"),
        )
        for i in range(n_pairs)
    ]
    with ThreadPoolExecutor(n_at_once) as workers:
        return list(workers.map(evaluator.evaluate, [Prepared(candidate=c) for c in candidates]))


def summarise(verdicts: list[Verdict], seconds: float) -> dict[str, Any]:
    correct = [v for v in verdicts if v.latency is not None]
    ratios = sorted(v.latency.speedup for v in correct if v.latency)
    return {
        "pairs": len(verdicts),
        "failed": [v.reason for v in verdicts if not v.is_correct],
        "false_gains": sum(v.replaces_baseline for v in verdicts),
        "median_us": statistics.median(v.latency.device_us for v in correct if v.latency) if correct else None,
        "ratio_min": ratios[0] if ratios else None,
        "ratio_median": statistics.median(ratios) if ratios else None,
        "ratio_max": ratios[-1] if ratios else None,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50, help="pairs for each of the four kernels")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/a_against_a.json"))
    arguments = parser.parse_args()
    kernels: dict[str, Any] = {}
    for name, (rows, cols) in SHAPES.items():
        problem = make_problem(rows, cols)
        settings = EvaluatorSettings(n_concurrent_sessions=arguments.at_once)
        with open_evaluator(problem, settings, DeviceKind.CUDA) as evaluator:
            start = time.perf_counter()
            verdicts = judge_pairs(evaluator, problem, arguments.pairs, arguments.at_once)
            kernels[name] = summarise(verdicts, time.perf_counter() - start)
        print(name, kernels[name], flush=True)
    n_pairs = sum(k["pairs"] for k in kernels.values())
    n_false = sum(k["false_gains"] for k in kernels.values())
    result = {
        "command": f"python -m benchmarks.a_against_a --pairs {arguments.pairs} --at-once {arguments.at_once}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": torch.cuda.get_device_name(),
        "versions": software_versions(),
        "kernels": kernels,
        "pairs": n_pairs,
        "false_gains": n_false,
        "false_gain_share": n_false / n_pairs,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{n_false} false gains in {n_pairs} pairs ({100 * n_false / n_pairs:.2f}%)")


if __name__ == "__main__":
    main()

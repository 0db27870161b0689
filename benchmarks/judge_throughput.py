"""How many candidates a minute go through the whole cascade on one GPU, each in a process of its own.

    python -m benchmarks.judge_throughput [--problem softmax] [--at-once 1 4 6 8]

Needs a CUDA device. Candidates are the problem's seed with other tiles and warps; each is compiled, captured, checked
on every input set and timed. Says where the time of a candidate goes.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from db.records import Candidate, DeviceKind, Lineage, Problem, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from evaluators.versions import software_versions

BLOCKS = (256, 512, 1024, 2048, 4096, 8192, 16384)
WARPS = (1, 2, 4, 8, 16, 32)


def make_variants(problem: Problem, salt: str) -> list[Candidate]:
    """The seed with every combination of tile and warps; `salt` makes kernels that no cache has seen."""
    sources = []
    for block, warps in itertools.product(BLOCKS, WARPS):
        source = re.sub(r"BLOCK = \d+", f"BLOCK = {block}", problem.seeds[0])
        source = re.sub(r"num_warps=\d+", f"num_warps={warps}", source)
        sources.append(source.replace("_kernel", f"_kernel_{salt}"))
    return [
        Candidate(
            candidate_id=f"t{salt}-0-{i:06d}",
            run_id=f"t{salt}",
            problem_id=problem.problem_id,
            island=0,
            source=source,
            entry_point=problem.entry_point,
            lineage=Lineage(operator="retune"),
        )
        for i, source in enumerate(sources)
    ]


def judge_all(evaluator: Evaluator, candidates: Sequence[Candidate], n_at_once: int, n_preparers: int) -> list[Verdict]:
    """Prepares on `n_preparers` threads and evaluates on `n_at_once`, both going on at the same time."""
    with ThreadPoolExecutor(n_preparers) as preparing, ThreadPoolExecutor(n_at_once) as evaluating:
        prepared = [preparing.submit(evaluator.prepare, candidate) for candidate in candidates]
        verdicts = [evaluating.submit(lambda p=p: evaluator.evaluate(p.result())) for p in prepared]
        return [v.result() for v in verdicts]


def summarise(verdicts: Sequence[Verdict], seconds: float) -> dict[str, Any]:
    phases = sorted({name for v in verdicts for name in v.seconds})
    correct = [v for v in verdicts if v.is_correct]
    return {
        "n_candidates": len(verdicts),
        "n_correct": len(correct),
        "reasons": sorted({v.reason for v in verdicts if not v.is_correct}),
        "per_minute": round(60 * len(verdicts) / seconds, 1),
        "seconds": round(seconds, 2),
        "median_seconds": {
            name: round(statistics.median(v.seconds.get(name, 0.0) for v in correct or verdicts), 4) for name in phases
        },
        "best_us": min((v.latency.device_us for v in correct if v.latency), default=None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="softmax")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 6, 8])
    parser.add_argument("--preparers", type=int, default=max(2, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/judge_throughput.json"))
    arguments = parser.parse_args()
    problem = load_problem(arguments.problem)
    runs: dict[str, Any] = {}
    for n in arguments.at_once:
        with open_evaluator(problem, EvaluatorSettings(n_concurrent_sessions=n), DeviceKind.CUDA) as evaluator:
            evaluator.judge(make_variants(problem, f"warm{n}")[0])
            candidates = make_variants(problem, f"k{n}")[: arguments.limit]
            start = time.perf_counter()
            verdicts = judge_all(evaluator, candidates, n, arguments.preparers)
            runs[str(n)] = summarise(verdicts, time.perf_counter() - start)
            runs[str(n)]["baseline"] = evaluator.baseline.model_dump(mode="json")
        print(n, json.dumps({k: v for k, v in runs[str(n)].items() if k != "baseline"}), flush=True)
    result = {
        "command": f"python -m benchmarks.judge_throughput --problem {arguments.problem}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores",
        "versions": software_versions(),
        "sessions_at_once": runs,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

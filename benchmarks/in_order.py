"""Runs in order with 1, 2, 4 and 8 evaluators: all of them end with the same digest, however many judge.

    python -m benchmarks.in_order                       # four runs on this machine, modelled latencies
    python -m benchmarks.in_order --evaluators 1 16 --evaluations 200 --out results.json

Evaluators share cores where there are more of them than cores. A digest covers every program that was judged, in
order, with its lineage, outcome, reason and latency; see `evolve.ordered`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.config import load_config
from evolve.run import run_search

PROBLEM = "reverse_cumsum"
SHAPES = {"n_rows": 256, "n_cols": 4096}


def digest_with(n_evaluators: int, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One run, and what it ended with."""
    places = {"archive": str(folder / f"{n_evaluators}.duckdb"), "out": str(folder / str(n_evaluators))}
    config = load_config(PROBLEM, options={**options, **places, "cluster": {"n_evaluators": n_evaluators}})
    began = time.perf_counter()
    result = run_search(config)
    busy = [round(share, 2) for share in result.evaluators_busy]
    return {
        "evaluators": n_evaluators,
        "digest": result.digest,
        "judged": result.progress.n_judged,
        "evaluators_busy": busy,
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    options = {
        "islands": arguments.islands,
        "evaluations": arguments.evaluations,
        "in_order": arguments.in_order,
        "rng_seed": arguments.rng_seed,
        "shapes": SHAPES,
        "device": "cpu",
        "stop_when_stagnant": False,
    }
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for n_evaluators in arguments.evaluators:
            runs.append(digest_with(n_evaluators, options, Path(folder)))
            print(json.dumps(runs[-1]), flush=True)
    return {
        "command": " ".join(["python -m benchmarks.in_order", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "problem": PROBLEM,
        "options": options,
        "runs": runs,
        "digests": sorted({run["digest"] for run in runs}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluators", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--in-order", type=int, default=12, help="candidates in flight")
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file for the figures")
    options = parser.parse_args(arguments)
    result = measure(options)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print("the same digest" if len(result["digests"]) == 1 else f"digests differ: {result['digests']}")
    sys.exit(0 if len(result["digests"]) == 1 else 1)


if __name__ == "__main__":
    main()

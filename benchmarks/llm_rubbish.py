"""A model that always answers rubbish, beside the structural run of the same evaluation budget.

    python -m benchmarks.llm_rubbish --seeds 3              # prints a table
    python -m benchmarks.llm_rubbish --json FILE            # and writes the figures

Whole runs, judged without a GPU, on small shapes. Three arms on each problem: no model; one whose answers give no
program (every kind of `tests/support/bad_answers.py`, and errors of its server); one that writes programs that compile
and are wrong, each of which costs a verdict of the same budget. The figure is the best modelled latency of each arm.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.bad_answers import bad_answers  # noqa: E402
from support.llm_server import Asked, LlmServer, Reply, answer, failing  # noqa: E402

from db.live import open_for_reading  # noqa: E402
from evaluators.problems import load_problem  # noqa: E402
from evolve.cluster import connected  # noqa: E402
from evolve.config import load_config  # noqa: E402
from evolve.run import run_search  # noqa: E402

PROBLEMS: dict[str, dict[str, int]] = {
    "softmax": {"n_rows": 512, "n_cols": 8192},
    "rms_norm": {"batch_size": 4, "channels": 64, "height": 64, "width": 64},
    "reverse_cumsum": {"n_rows": 256, "n_cols": 4096},
}
MARK = 1.02  # of the best latency of the structural run, as a geometric mean over all
WRONG = """TECHNIQUE: fusion
CHANGE: everything in one launch
EXPECT: 300%

```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fill_kernel(y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, {number}.0, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x, *others):
        y = torch.empty_like(x)
        fill_kernel[(triton.cdiv(x.numel(), 1024),)](y, x.numel(), BLOCK=1024)
        return y
```
"""


def no_programs(name: str) -> Iterator[Reply]:
    """Answers that give no program, an error after every fourth."""
    for number, bad in enumerate(itertools.cycle(bad_answers(load_problem(name).seeds[0], 72))):
        yield failing(500) if number % 5 == 4 else answer(bad.text, finish_reason=bad.finish_reason, delay_s=0.2)


def wrong_programs(name: str) -> Iterator[Reply]:
    """Programs that compile, each another one, and none that computes anything."""
    del name
    for number in itertools.count():
        yield answer(WRONG.format(number=number), delay_s=0.2)


ARMS: dict[str, Callable[[str], Iterator[Reply]] | None] = {
    "structural": None,
    "no programs": no_programs,
    "wrong programs": wrong_programs,
}


def run(name: str, arm: str, rng_seed: int, n_evaluations: int) -> dict[str, Any]:
    """One run to its end."""
    make = ARMS[arm]
    source = make(name) if make else iter(())

    def script(asked: Asked) -> Reply:
        del asked
        return next(source)

    with tempfile.TemporaryDirectory() as folder, LlmServer(script) as server:
        archive = Path(folder) / "a.duckdb"
        options: dict[str, Any] = {
            "archive": str(archive),
            "out": str(Path(folder) / "out"),
            "device": "cpu",
            "islands": 2,
            "evaluations": n_evaluations,
            "rng_seed": rng_seed,
            "shapes": PROBLEMS[name],
            "stop_at_roofline": 1.0,
            "stop_when_stagnant": False,
        }
        if make:
            options["models"] = [f"openai/scripted,api_base={server.api_base},unpriced"]
        result = run_search(load_config(name, options=options))
        with open_for_reading(archive) as reader:
            evaluations = reader.evaluations(result.run.run_id)
        n_asked = len(server.asked)
    latency = result.best.verdict.latency if result.best else None
    return {
        "problem": name,
        "arm": arm,
        "rng_seed": rng_seed,
        "best_us": latency.device_us if latency else None,
        "judged": result.progress.n_judged,
        "by_the_model": sum(bool(e.candidate.lineage.model) for e in evaluations),
        "requests": n_asked,
        "seconds": round(result.progress.elapsed_s, 1),
    }


def table(runs: list[dict[str, Any]]) -> str:
    """One row a problem: the median best latency of each arm, and what the rubbish took."""
    rows = ["| problem | " + " | ".join(f"{arm}, us" for arm in ARMS) + " | requests | verdicts on wrong programs |"]
    rows.append("|---" * (len(ARMS) + 3) + "|")
    for name in dict.fromkeys(one["problem"] for one in runs):
        own = [one for one in runs if one["problem"] == name]
        best = [statistics.median(one["best_us"] for one in own if one["arm"] == arm) for arm in ARMS]
        requests = sum(one["requests"] for one in own)
        wrong = sum(one["by_the_model"] for one in own)
        rows.append(f"| {name} | " + " | ".join(f"{us:.2f}" for us in best) + f" | {requests} | {wrong} |")
    return "\n".join(rows)


def ratio(runs: list[dict[str, Any]], arm: str) -> float:
    """The best latency of an arm over that of the structural run of the same problem and seed, geometric mean."""
    best = {(one["problem"], one["rng_seed"], one["arm"]): one["best_us"] for one in runs}
    pairs = [(us, best[problem, seed, "structural"]) for (problem, seed, which), us in best.items() if which == arm]
    return statistics.geometric_mean([own / structural for own, structural in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--evaluations", type=int, default=32)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    runs = []
    with connected():
        for name, rng_seed, arm in itertools.product(PROBLEMS, range(given.seeds), ARMS):
            runs.append(run(name, arm, rng_seed, given.evaluations))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    ratios = {arm: round(ratio(runs, arm), 4) for arm in ARMS if arm != "structural"}
    figures = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, litellm {version('litellm')}",
        "evaluations": given.evaluations,
        "best_latency_to_structural": ratios,
        "mark": MARK,
        "is_met": all(value <= MARK for value in ratios.values()),
        "runs": runs,
    }
    print(table(runs))
    print(json.dumps({name: value for name, value in figures.items() if name != "runs"}, indent=2))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""What each part of the search is worth: the same budget without it, on modelled latencies.

    python -m benchmarks.ablation --seeds 5 --evaluations 60

`full` has profiles, knowledge learnt on the other half of the suite, and four islands. Each other arm lacks one part.
Two figures an arm, each against `full` on the same problem and seed, as geometric means with a 95% interval: the best
latency found (above 1: slower), and the verdicts needed to reach 95% of the best latency that any arm found. Results
are kept per search in OUT/cpu.jsonl, so that they can be measured in parts: a search that is there is not repeated.
`--table` prints what is there.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from benchmarks.offline import Arm, CachedJudge, Trace, bootstrap, cycles_only, nothing, search
from benchmarks.transfer import REACHED, TARGET, Job, Line, learnt, run_jobs, searched
from db.knowledge import TechniqueEvidence
from evaluators.problems import load_problem, suite_names
from islands.knowledge import PriorKnowledge

N_PROBLEMS = 6
NO_KNOWLEDGE = {"operator_choice": "bandit"}


def arms_of(evidence: list[TechniqueEvidence]) -> list[Arm]:
    """Every arm; those with knowledge start from the evidence."""
    prior = {"prior": PriorKnowledge(tuple(evidence), max((e.last_at_s for e in evidence), default=0.0))}
    return [
        Arm("full", island_options=prior),
        Arm("cycles only", sight=cycles_only, island_options=prior),
        Arm("no profile", sight=nothing, island_options=prior),
        Arm("no knowledge", settings=NO_KNOWLEDGE),
        Arm("one island", n_islands=1, island_options=prior),
        Arm("random operators", settings={"operator_choice": "random"}),
        Arm("beam", strategy="beam", n_islands=1),
        Arm("greedy", strategy="greedy", n_islands=1),
        Arm("best of N", strategy="best-of-n", n_islands=1),
    ]


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "cpu.jsonl"
    if not arguments.table:
        names = sorted(suite_names())
        evidence = learnt(names[::2], arguments.cache, arguments.evaluations, arguments.jobs)
        held_out = arguments.problems or names[1::2][:N_PROBLEMS]
        arms = [arm.name for arm in arms_of([])]
        wanted = [(arm, name, seed) for seed in range(arguments.seeds) for name in held_out for arm in arms]
        jobs = [
            Job(*one, arguments.cache, arguments.evaluations, evidence) for one in wanted if one not in searched(path)
        ]
        run_jobs(_search, jobs, arguments.jobs, path, arguments.minutes)
    print(table(path))


def _search(job: Job) -> Trace:
    problem = load_problem(job.problem, sizes={})
    arm = next(arm for arm in arms_of(job.evidence) if arm.name == job.arm)
    with CachedJudge(problem, job.cache, TARGET) as judge:
        return search(problem, judge, arm, job.rng_seed, job.n)


def table(path: Path) -> str:
    """One row an arm."""
    texts = path.read_text().splitlines() if path.exists() else []
    lines = {(line.arm, line.problem, line.rng_seed): line for line in (Line(**json.loads(text)) for text in texts)}
    best: dict[str, float] = {}
    for line in lines.values():
        best[line.problem] = min(best.get(line.problem, math.inf), _last(line))
    rows = [
        "| arm | searches | best latency, to full | 95% | verdicts to 95%, to full | 95% |",
        "|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(line.arm for line in lines.values()):
        pairs = [(line, lines["full", *key[1:]]) for key, line in lines.items() if key[0] == arm]
        latency = [math.log(_last(own) / _last(full)) for own, full in pairs]
        needed = [
            math.log(own.n_to_reach(best[own.problem] / REACHED) / full.n_to_reach(best[own.problem] / REACHED))
            for own, full in pairs
        ]
        rows.append(f"| {arm} | {len(pairs)} | {_shown(latency)} | {_shown(needed)} |")
    return "\n".join(rows)


def _last(line: Line) -> float:
    return line.best_us[-1] if line.best_us and line.best_us[-1] is not None else math.inf


def _shown(logs: list[float]) -> str:
    low, high = bootstrap(logs, lambda values: sum(values) / len(values))
    return f"{math.exp(sum(logs) / len(logs)):.3f} | {math.exp(low):.3f} to {math.exp(high):.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help="instead of six that nothing was learnt on")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no search after so long")
    parser.add_argument("--cache", type=Path, default=Path("evolve-out/verdicts"), help="verdicts that are judged once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ablation"))
    parser.add_argument("--table", action="store_true", help="print what was measured and stop")
    return parser.parse_args()


if __name__ == "__main__":
    main()

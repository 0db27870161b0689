"""What each part of the search is worth: the same budget without it.

    python -m benchmarks.ablation --seeds 5 --evaluations 60                           # modelled latencies, no GPU
    python -m benchmarks.ablation --device cuda --gpus 0 1 --seeds 3 --evaluations 40 PROBLEM PROBLEM

`full` has profiles, knowledge learnt on the other half of the suite, and four islands. Each other arm lacks one part.
Two figures an arm, each against `full` on the same problem and seed, as geometric means with a 95% interval: the best
latency found (above 1: slower), and the verdicts needed to reach 95% of the best latency that any arm found. Results
are kept per search in OUT, so that they can be measured in parts: a search that is there is not repeated. `--table`
prints what is there.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.offline import Arm, CachedJudge, Trace, bootstrap, cycles_only, nothing, search
from benchmarks.transfer import (
    REACHED,
    Bench,
    Job,
    Line,
    arguments_of,
    bench_of,
    learning_on,
    learnt,
    parser,
    prior_of,
    run_jobs,
    searched,
)
from evaluators.problems import suite_names
from evolve.knowledge import Knowledge

N_PROBLEMS = 6
NO_KNOWLEDGE = {"operator_choice": "bandit"}


def arms_of(known: Knowledge) -> list[Arm]:
    """Every arm; those with knowledge start from what is known."""
    prior = {"prior": prior_of(known)}
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
    made = parser()
    made.set_defaults(out=Path("benchmarks/results/ablation"))
    arguments = arguments_of(made)
    path = arguments.out / f"{arguments.device}.jsonl"
    if not arguments.table:
        bench = bench_of(arguments)
        problems = arguments.problems or sorted(suite_names())[1::2][:N_PROBLEMS]
        known = learnt(learning_on(arguments.learn, problems), bench)
        arms = [arm.name for arm in arms_of(Knowledge([], []))]
        wanted = [(arm, name, seed) for seed in range(arguments.seeds) for name in problems for arm in arms]
        run_jobs(_search, [Job(*one, known) for one in wanted if one not in searched(path)], bench, path)
    print(table(path))


def _search(job: Job, judge: CachedJudge, bench: Bench) -> Trace:
    arm = next(arm for arm in arms_of(job.known) if arm.name == job.arm)
    return search(judge.problem, judge, arm, job.rng_seed, bench.n_evaluations)


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
        latency, needed = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for own, full in pairs:
            goal_us = best[own.problem] / REACHED
            latency[own.problem].append(math.log(_last(own) / _last(full)))
            needed[own.problem].append(math.log(own.n_to_reach(goal_us) / full.n_to_reach(goal_us)))
        rows.append(f"| {arm} | {len(pairs)} | {_shown(latency)} | {_shown(needed)} |")
    return "\n".join(rows)


def _last(line: Line) -> float:
    return line.best_us[-1] if line.best_us and line.best_us[-1] is not None else math.inf


def _shown(by_problem: Mapping[str, Sequence[float]]) -> str:
    logs = [one for own in by_problem.values() for one in own]
    low, high = bootstrap(list(by_problem.values()), statistics.fmean)
    return f"{math.exp(statistics.fmean(logs)):.3f} | {math.exp(low):.3f} to {math.exp(high):.3f}"


if __name__ == "__main__":
    main()

"""Does knowledge learnt on some problems help on others?

    python -m benchmarks.transfer --seeds 5 --evaluations 60                              # modelled latencies, no GPU
    python -m benchmarks.transfer --device cuda --gpus 0 1 --seeds 3 --evaluations 60 PROBLEM ...
    python -m benchmarks.transfer PROBLEM ... --learn OTHER ...
    python -m benchmarks.transfer --seeds 5 --evaluations 60 --blank                      # operators have no priors

Every other problem of the suite is searched without knowledge; what was learnt there, evidence and recipes, is used on
the problems named (default: all others), beside the same searches that start with an empty knowledge base.

The figure: verdicts needed to reach 95% of the best latency that any search of the problem found (a search that never
reached it counts with all of its verdicts), with knowledge over without, as a geometric mean over problems and seeds.
Results are kept per search in OUT/*.jsonl, so that they can be measured in parts; `--table` prints what is there.

What operators may be expected to gain before anything is known, their priors, was set by people who had seen all
problems of the suite. `--blank` leaves these out of every search, those that are learnt from as well, so that what
helps can only have come from other problems.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.offline import Arm, CachedJudge, Trace, bootstrap, save, search
from db.archive import ProgramArchive
from db.knowledge import summed
from db.records import DeviceKind, LatencyKind, PrecisionClass, Run
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem, suite_names
from evolve.knowledge import Knowledge, read_knowledge, write_knowledge
from evolve.recipes import distinct, recipes_in
from islands.knowledge import PriorKnowledge

TARGET = "h200"
REACHED = 0.95
N_LEARNING_SEEDS = 2
_ARMS = ("learnt", "empty")


class Line(NamedTuple):
    """One search of OUT: its running best, in microseconds, None while nothing was correct."""

    arm: str
    problem: str
    rng_seed: int
    best_us: list[float | None]

    def n_to_reach(self, latency_us: float) -> int:
        return next((n for n, us in enumerate(self.best_us, 1) if us is not None and us <= latency_us), self.n)

    @property
    def n(self) -> int:
        return len(self.best_us)


class Bench(NamedTuple):
    """Where and how searches are run: `n_jobs` processes at once, shared out over the GPUs where it measures."""

    device: DeviceKind
    cache: Path
    n_evaluations: int
    n_jobs: int
    gpus: tuple[str, ...] = ()
    until_s: float = math.inf  # of the monotonic clock; no search begins later
    has_priors: bool = True  # of the operators

    def gpu_of(self, number: int) -> str:
        return self.gpus[number % len(self.gpus)] if self.gpus else ""

    def judge(self, problem_name: str) -> CachedJudge:
        return CachedJudge(load_problem(problem_name, sizes={}), self.cache, TARGET, self.device)


class Job(NamedTuple):
    """One search. `known` is what arms with knowledge start from."""

    arm: str
    problem: str
    rng_seed: int
    known: Knowledge


Search = Callable[[Job, CachedJudge, Bench], Trace]


def main() -> None:
    made = parser()
    made.add_argument("--blank", action="store_true", help="without what operators are expected to gain by themselves")
    arguments = arguments_of(made)
    path = arguments.out / f"{arguments.device}{'-blank' if arguments.blank else ''}.jsonl"
    if not arguments.table:
        bench = bench_of(arguments)._replace(has_priors=not arguments.blank)
        problems = arguments.problems or sorted(suite_names())[1::2]
        known = learnt(learning_on(arguments.learn, problems), bench)
        wanted = [(arm, name, seed) for seed in range(arguments.seeds) for name in problems for arm in _ARMS]
        run_jobs(_search, [Job(*one, known) for one in wanted if one not in searched(path)], bench, path)
    print(table(path))


# ------------------------------------------------------------------------------------------------------------ searches


def run_jobs(run: Search, jobs: Sequence[Job], bench: Bench, path: Path) -> None:
    """Searches in processes, each kept as it ends. On a GPU one process has all searches of a problem: it pays once for
    the baselines."""
    groups: dict[object, list[Job]] = defaultdict(list)
    for number, job in enumerate(jobs):
        groups[job.problem if bench.device is DeviceKind.CUDA else number].append(job)
    with ProcessPoolExecutor(bench.n_jobs, max_tasks_per_child=1) as pool:
        running = [
            pool.submit(_run_group, run, group, bench, bench.gpu_of(number), path)
            for number, group in enumerate(groups.values())
        ]
        for future in running:
            future.result()


def _run_group(run: Search, jobs: Sequence[Job], bench: Bench, gpu: str, path: Path) -> None:
    os.environ.update({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
    if time.monotonic() > bench.until_s:
        return
    with bench.judge(jobs[0].problem) as judge:
        for job in jobs:
            if time.monotonic() > bench.until_s:
                return
            trace = run(job, judge, bench)
            save(trace, path)
            print(trace.arm, trace.problem, trace.rng_seed, f"{trace.best_us[-1]:.1f}", flush=True)


def searched(path: Path) -> set[tuple[str, str, int]]:
    """Arm, problem and seed of every search that a file of traces has."""
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return {(line["arm"], line["problem"], line["rng_seed"]) for line in lines}


def _search(job: Job, judge: CachedJudge, bench: Bench) -> Trace:
    options = {"prior": prior_of(job.known)} if job.arm == "learnt" else {}
    arm = Arm(job.arm, island_options=options, has_priors=bench.has_priors)
    return search(judge.problem, judge, arm, job.rng_seed, bench.n_evaluations)


def prior_of(known: Knowledge) -> PriorKnowledge:
    """What islands that know this start from."""
    return PriorKnowledge(known.evidence, max((e.last_at_s for e in known.evidence), default=0.0), known.recipes)


# ------------------------------------------------------------------------------------------------------------ learning


def learning_on(named: Sequence[str] | None, searched: Sequence[str]) -> list[str]:
    """The problems to learn on: those named, else every other one of the suite that is not searched itself."""
    names = list(named or [name for name in sorted(suite_names())[::2] if name not in searched])
    if both := set(names) & set(searched):
        raise SystemExit(f"{min(both)} is learnt on and searched: knowledge has to come from other problems")
    return names


def learnt(names: Sequence[str], bench: Bench) -> Knowledge:
    """What searches without knowledge learn on these problems; kept beside the verdicts, and learnt once."""
    blank = "" if bench.has_priors else "blank-"
    place = bench.cache / f"learnt-{blank}{bench.device}-{bench.n_evaluations}-{'-'.join(names)}.json"
    if not place.exists():
        with ProcessPoolExecutor(bench.n_jobs, max_tasks_per_child=1) as pool:
            running = [pool.submit(_learn, name, bench, bench.gpu_of(k)) for k, name in enumerate(names)]
            found = [future.result() for future in running]
        evidence = summed([one for known in found for one in known.evidence])
        write_knowledge(Knowledge(evidence, distinct([one for known in found for one in known.recipes])), place)
    return read_knowledge(place)


def _learn(name: str, bench: Bench, gpu: str) -> Knowledge:
    os.environ.update({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
    with bench.judge(name) as judge:
        seeds = range(1000, 1000 + N_LEARNING_SEEDS)
        arm = Arm("learning", has_priors=bench.has_priors)
        return knowledge_of([search(judge.problem, judge, arm, seed, bench.n_evaluations) for seed in seeds])


def knowledge_of(traces: Sequence[Trace]) -> Knowledge:
    """What an archive of these searches of one problem knows."""
    problem = load_problem(traces[0].problem, sizes={})
    with tempfile.TemporaryDirectory() as folder, ProgramArchive.open(Path(folder) / "learnt.duckdb") as archive:
        archive.add_problem(problem)
        for trace in traces:
            archive.add_run(_run_of(trace, problem.problem_id))
            archive.insert(trace.evaluations)
        return Knowledge(archive.knowledge(), recipes_in(archive))


def _run_of(trace: Trace, problem_id: str) -> Run:
    latencies = [e.verdict.latency for e in trace.evaluations if e.verdict.latency]
    kind = latencies[0].kind if latencies else LatencyKind.MODELLED
    return Run(
        run_id=trace.evaluations[0].candidate.run_id,
        problem_id=problem_id,
        rng_seed=trace.rng_seed,
        device=DeviceKind.CPU if kind is LatencyKind.MODELLED else DeviceKind.CUDA,
        hardware=load_hardware(TARGET),
        precision=PrecisionClass.REFERENCE,
        latency_kind=kind,
        config={},
    )


# --------------------------------------------------------------------------------------------------------------- table


def table(path: Path) -> str:
    """Per problem and over all: verdicts needed by each arm, and the ratio to the empty knowledge base."""
    lines = [Line(**json.loads(text)) for text in path.read_text().splitlines()] if path.exists() else []
    lines = [line for line in lines if line.best_us and line.best_us[-1] is not None]
    by_problem: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_problem[line.problem].append(line)
    rows = [
        "| problem | best us | seeds | " + " | ".join(_ARMS) + " | learnt / empty | best latency, learnt / empty |",
        "|---|---|---|---|---|---|---|",
    ]
    logs: list[list[float]] = []  # of each problem
    for problem, own in sorted(by_problem.items()):
        best_us = min(line.best_us[-1] or math.inf for line in own)
        found = {(line.arm, line.rng_seed): line for line in own}
        needed = {key: line.n_to_reach(best_us / REACHED) for key, line in found.items()}
        both = [seed for arm, seed in sorted(found) if arm == "empty" and ("learnt", seed) in found]
        mine = [math.log(needed["learnt", s] / needed["empty", s]) for s in both]
        ends = [math.log(_last(found["learnt", s]) / _last(found["empty", s])) for s in both]
        logs += [mine] if mine else []
        cells = [_median_of([n for (arm, _), n in needed.items() if arm == wanted]) for wanted in _ARMS]
        rows.append(f"| {problem} | {best_us:.1f} | {len(both)} | {' | '.join(cells)} | {_geo(mine)} | {_geo(ends)} |")
    if logs:
        low, high = bootstrap(logs, _mean)
        all_logs = [one for own in logs for one in own]
        interval = f"95% interval {math.exp(low):.2f} to {math.exp(high):.2f}, {len(all_logs)} pairs"
        rows.append(f"\nverdicts to 95% of the best, learnt over empty: {_geo(all_logs)} ({interval})")
    return "\n".join(rows)


def _last(line: Line) -> float:
    return line.best_us[-1] or math.inf


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _geo(logs: Sequence[float]) -> str:
    return f"{math.exp(_mean(logs)):.2f}" if logs else ""


def _median_of(values: Sequence[int]) -> str:
    return str(sorted(values)[len(values) // 2]) if values else "–"


# ----------------------------------------------------------------------------------------------------------- arguments


def parser() -> argparse.ArgumentParser:
    """What `benchmarks.ablation` takes as well."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("problems", nargs="*", help="to search with and without knowledge")
    made.add_argument("--learn", nargs="*", help="problems to learn on, after those to search")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--gpus", nargs="*", default=["0"], help="indices of the GPUs to share problems out to")
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--evaluations", type=int, default=60)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--minutes", type=float, default=math.inf, help="begin no search after so long")
    made.add_argument("--cache", type=Path, default=Path("evolve-out/verdicts"), help="verdicts that are judged once")
    made.add_argument("--out", type=Path, default=Path("benchmarks/results/transfer"))
    made.add_argument("--table", action="store_true", help="print what was measured and stop")
    return made


def arguments_of(made: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = made.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def bench_of(arguments: argparse.Namespace) -> Bench:
    arguments.cache.mkdir(parents=True, exist_ok=True)
    device = DeviceKind(arguments.device)
    gpus = tuple(arguments.gpus) if device is DeviceKind.CUDA else ()
    until_s = time.monotonic() + 60 * arguments.minutes
    return Bench(device, arguments.cache, arguments.evaluations, arguments.jobs, gpus, until_s)


if __name__ == "__main__":
    main()

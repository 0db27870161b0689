"""Does knowledge learnt on some problems help on others, and does it learn to predict?

    python -m benchmarks.transfer --seeds 5 --evaluations 60                      # modelled latencies, no GPU
    python -m benchmarks.transfer --device cuda --knowledge FILE --seeds 3 --time 55s PROBLEM ...

Modelled: half of the suite is searched without knowledge; what was learnt there is used on the other half, beside the
same searches that start with an empty knowledge base. On a GPU the knowledge comes from a file (`evolve knowledge
export`) that must not know the problems, and each pair of runs shares the GPU side by side.

The figure: verdicts needed to reach 95% of the best latency that any search of the problem found (a search that never
reached it counts with all of its verdicts), with knowledge over without, as a geometric mean over problems and seeds.
Results are kept per search in OUT/*.jsonl, so that they can be measured in parts; `--table` prints what is there.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.offline import Arm, CachedJudge, Trace, bootstrap, save, search
from db.archive import ProgramArchive
from db.knowledge import TechniqueEvidence, summed
from db.live import open_for_reading
from db.records import DeviceKind, LatencyKind, PrecisionClass, Run
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem, suite_names
from evolve.knowledge import read_knowledge, write_knowledge
from islands.knowledge import PriorKnowledge

TARGET = "h200"
REACHED = 0.95
N_LEARNING_SEEDS = 2


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


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        pass
    elif arguments.device == "cuda":
        measure_on_gpu(arguments)
    else:
        measure_modelled(arguments)
    print(table(arguments.out / f"{arguments.device}.jsonl"))


# ------------------------------------------------------------------------------------------------------------ modelled


class Job(NamedTuple):
    """One modelled search. `evidence` is what arms with knowledge start from."""

    arm: str
    problem: str
    rng_seed: int
    cache: Path
    n: int
    evidence: list[TechniqueEvidence]


def measure_modelled(arguments: argparse.Namespace) -> None:
    """Learn on every other problem of the suite, test on the rest."""
    names = sorted(arguments.problems or suite_names())
    learning, held_out = names[::2], names[1::2]
    evidence = learnt(learning, arguments.cache, arguments.evaluations, arguments.jobs)
    path = arguments.out / "cpu.jsonl"
    wanted = [(arm, name, seed) for seed in range(arguments.seeds) for name in held_out for arm in _ARMS]
    jobs = [Job(*one, arguments.cache, arguments.evaluations, evidence) for one in wanted if one not in searched(path)]
    run_jobs(_search, jobs, arguments.jobs, path, arguments.minutes)


def searched(path: Path) -> set[tuple[str, str, int]]:
    """Arm, problem and seed of every search that a file of traces has."""
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return {(line["arm"], line["problem"], line["rng_seed"]) for line in lines}


def run_jobs(run: Callable[[Job], Trace], jobs: Sequence[Job], n: int, path: Path, minutes: float) -> None:
    """Jobs in processes, `n` at a time, each kept as it ends; none begins after so many minutes."""
    end, waiting = time.monotonic() + 60 * minutes, list(reversed(jobs))
    with ProcessPoolExecutor(n, max_tasks_per_child=1) as pool:
        running = {pool.submit(run, waiting.pop()) for _ in range(min(n, len(waiting)))}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for trace in (future.result() for future in done):
                save(trace, path)
                print(trace.arm, trace.problem, trace.rng_seed, f"{trace.best_us[-1]:.1f}", flush=True)
                if waiting and time.monotonic() < end:
                    running.add(pool.submit(run, waiting.pop()))


def learnt(names: Sequence[str], cache: Path, n: int, n_jobs: int) -> list[TechniqueEvidence]:
    """What searches without knowledge learn on these problems; kept beside the verdicts, and learnt once."""
    place = cache / f"learnt-{n}-{'-'.join(names)}.json"
    if not place.exists():
        jobs = [(name, seed, cache, n) for name in names for seed in range(N_LEARNING_SEEDS)]
        with ProcessPoolExecutor(n_jobs, max_tasks_per_child=1) as pool:
            found = [one for evidence in pool.map(_learn, jobs) for one in evidence]
        write_knowledge(summed(found), place)
    return read_knowledge(place)


def _learn(job: tuple[str, int, Path, int]) -> list[TechniqueEvidence]:
    name, seed, cache, n = job
    problem = load_problem(name, sizes={})
    with CachedJudge(problem, cache, TARGET) as judge:
        return evidence_of([search(problem, judge, Arm("learning"), 1000 + seed, n)], name)


def _search(job: Job) -> Trace:
    problem = load_problem(job.problem, sizes={})
    known = PriorKnowledge(tuple(job.evidence), max((e.last_at_s for e in job.evidence), default=0.0))
    arm = Arm(job.arm, island_options={"prior": known}) if job.arm == "learnt" else Arm(job.arm)
    with CachedJudge(problem, job.cache, TARGET) as judge:
        return search(problem, judge, arm, job.rng_seed, job.n)


def evidence_of(traces: Sequence[Trace], name: str) -> list[TechniqueEvidence]:
    """What an archive of these searches knows."""
    problem = load_problem(name, sizes={})
    with tempfile.TemporaryDirectory() as folder, ProgramArchive.open(Path(folder) / "learnt.duckdb") as archive:
        archive.add_problem(problem)
        for trace in traces:
            archive.add_run(_run_of(trace, problem.problem_id))
            archive.insert(trace.evaluations)
        return archive.knowledge()


def _run_of(trace: Trace, problem_id: str) -> Run:
    return Run(
        run_id=trace.evaluations[0].candidate.run_id,
        problem_id=problem_id,
        rng_seed=trace.rng_seed,
        device=DeviceKind.CPU,
        hardware=load_hardware(TARGET),
        precision=PrecisionClass.REFERENCE,
        latency_kind=LatencyKind.MODELLED,
        config={},
    )


# ------------------------------------------------------------------------------------------------------------- on a GPU


def measure_on_gpu(arguments: argparse.Namespace) -> None:
    """Runs of the command, with and without knowledge side by side."""
    pairs = [(name, seed) for seed in arguments.rng_seeds or range(arguments.seeds) for name in arguments.problems]
    for name, seed in pairs:
        with ThreadPoolExecutor(2) as both:
            running = [both.submit(_run_on_gpu, name, seed, arm, arguments) for arm in ("learnt", "empty")]
            lines = [run.result() for run in running]
        with (arguments.out / "cuda.jsonl").open("a") as file:
            for line in lines:
                file.write(json.dumps(line._asdict()) + "\n")
                print(line.arm, line.problem, line.rng_seed, line.n, line.best_us[-1:], flush=True)


def _run_on_gpu(name: str, seed: int, arm: str, arguments: argparse.Namespace) -> Line:
    folder = arguments.out / "runs" / f"{name}-{arm}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "evolve.cli.main", "run", name, "--archive", str(folder / "archive.duckdb")]
    command += ["--out", str(folder), "--time", arguments.time, "--islands", "2", "--evaluations", "100000"]
    command += ["--device", "cuda", "--rng-seed", str(seed), "--set", "search.operator_choice=knowledge"]
    command += ["--knowledge", str(arguments.knowledge) if arm == "learnt" else "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        print((done.stdout + done.stderr)[-2000:], flush=True)
        return Line(arm, name, seed, [])
    with open_for_reading(folder / "archive.duckdb") as archive:
        return Line(arm, name, seed, _running_best(archive.query(_OWN).rows))


_OWN = "SELECT latency_us FROM evaluations WHERE operator != 'confirm' AND duplicate_of = '' ORDER BY seq"


def _running_best(rows: Iterable[Sequence[Any]]) -> list[float | None]:
    best: float | None = None
    found: list[float | None] = []
    for (latency_us,) in rows:
        if latency_us is not None:
            best = latency_us if best is None else min(best, latency_us)
        found.append(best)
    return found


# --------------------------------------------------------------------------------------------------------------- table


def table(path: Path) -> str:
    """Per problem and over all: verdicts needed by each arm, and the ratio to the empty knowledge base."""
    lines = [Line(**json.loads(text)) for text in path.read_text().splitlines()] if path.exists() else []
    lines = [line for line in lines if line.best_us and line.best_us[-1] is not None]
    by_problem: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_problem[line.problem].append(line)
    rows = [
        "| problem | best us | seeds | " + " | ".join(_ARMS) + " | learnt / empty |",
        "|---|---|---|---|---|---|---|",
    ]
    logs: list[float] = []
    for problem, own in sorted(by_problem.items()):
        best_us = min(line.best_us[-1] or math.inf for line in own)
        needed = {(line.arm, line.rng_seed): line.n_to_reach(best_us / REACHED) for line in own}
        seeds = sorted({seed for _, seed in needed})
        both = [s for s in seeds if {("learnt", s), ("empty", s)} <= needed.keys()]
        mine = [math.log(needed["learnt", s] / needed["empty", s]) for s in both]
        ratio = f"{math.exp(_mean(mine)):.2f}" if mine else ""
        logs += mine
        cells = [_median_of([n for (arm, _), n in needed.items() if arm == wanted]) for wanted in _ARMS]
        rows.append(f"| {problem} | {best_us:.1f} | {len(seeds)} | {' | '.join(cells)} | {ratio} |")
    if logs:
        low, high = bootstrap(logs, _mean)
        ends = f"95% interval {math.exp(low):.2f} to {math.exp(high):.2f}, {len(logs)} pairs"
        rows.append(f"\nverdicts to 95% of the best, learnt over empty: {math.exp(_mean(logs)):.2f} ({ends})")
    return "\n".join(rows)


_ARMS = ("learnt", "empty")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _median_of(values: Sequence[int]) -> str:
    return str(sorted(values)[len(values) // 2]) if values else "–"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rng-seeds", type=int, nargs="*", help="on a GPU: these seeds instead of 0 to SEEDS - 1")
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--time", default="55s", help="on a GPU: search time of each run")
    parser.add_argument("--knowledge", type=Path, help="on a GPU: what was learnt on other problems")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no modelled search after so long")
    parser.add_argument("--cache", type=Path, default=Path("evolve-out/verdicts"), help="verdicts that are judged once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/transfer"))
    parser.add_argument("--table", action="store_true", help="print what was measured and stop")
    return parser.parse_args()


if __name__ == "__main__":
    main()

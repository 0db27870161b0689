"""Searches without Ray: real islands, operators and gates, in one process, one verdict after the other. What a
comparison of many searches needs: every verdict is kept by program, and the next search that proposes the same program
gets it for nothing, so that arms and seeds of a benchmark share what was judged.

Not a command; `benchmarks.transfer` and `benchmarks.ablation` are.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from db.measures import Tier
from db.records import Candidate, DeviceKind, Evaluation, Problem, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings, Prepared
from evaluators.opening import open_evaluator
from islands.bandit import PRIOR
from islands.island import Island, island_rng
from islands.migration import make_topology
from islands.operators import default_operators
from islands.operators.base import Operator
from islands.seed import Seed
from islands.settings import IslandSettings
from islands.strategies import make_strategy

Sight = Callable[[Verdict], Verdict]
"""What of a verdict an island is shown."""


N_PREPARERS = 6
"""Threads that prepare candidates ahead of a GPU."""


class CachedJudge:
    """An evaluator of one problem that judges a program once, in this process or an earlier one.

    It answers with modelled latencies of a target, or measures on the first visible GPU.
    """

    def __init__(
        self, problem: Problem, folder: Path, target: str = "h200", device: DeviceKind = DeviceKind.CPU
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.problem = problem
        self._device = device
        self._settings = EvaluatorSettings(target=target, secret_seed=0)
        self._path = folder / f"{problem.name}-{target if device is DeviceKind.CPU else device.value}.jsonl"
        self._ahead = ThreadPoolExecutor(N_PREPARERS) if device is DeviceKind.CUDA else None
        self._prepared: dict[str, Future[Prepared]] = {}
        self._evaluator: Evaluator | None = None
        self._verdicts: dict[str, str] = {}
        self._by_fingerprint: dict[str, str] = {}  # program id of the first with this fingerprint
        self.n_fresh = 0
        self.fresh_s = 0.0
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                self._keep(Verdict.model_validate_json(line), line)

    def judge(self, candidate: Candidate) -> Verdict:
        """The verdict of the program, under the candidate's own id."""
        if candidate.program_id not in self._verdicts:
            self._judge(candidate)
        known = Verdict.model_validate_json(self._verdicts[candidate.program_id])
        return known.model_copy(update={"candidate_id": candidate.candidate_id, "run_id": candidate.run_id})

    def expect(self, candidate: Candidate) -> None:
        """The candidate will be judged soon: a GPU need not wait for its compilation."""
        is_new = candidate.program_id not in self._verdicts and candidate.program_id not in self._prepared
        if self._ahead is not None and is_new:
            self._prepared[candidate.program_id] = self._ahead.submit(self._opened().prepare, candidate)

    def _opened(self) -> Evaluator:
        if self._evaluator is None:
            self._evaluator = open_evaluator(self.problem, self._settings, self._device)
        return self._evaluator

    def _judge(self, candidate: Candidate) -> None:
        began = time.perf_counter()
        evaluator, waited = self._opened(), self._prepared.pop(candidate.program_id, None)
        prepared = waited.result() if waited else evaluator.prepare(candidate)
        twin = self._by_fingerprint.get(prepared.fingerprint) if prepared.fingerprint else None
        if twin is not None and prepared.verdict is None:
            verdict = Verdict.model_validate_json(self._verdicts[twin])
            verdict = verdict.model_copy(update={"program_id": candidate.program_id, "duplicate_of": twin})
        else:
            verdict = evaluator.evaluate(prepared.model_copy(update={"candidate": candidate}))
        line = verdict.model_dump_json()
        with self._path.open("a") as file:
            file.write(line + "\n")
        self._keep(verdict, line)
        self.n_fresh += 1
        self.fresh_s += time.perf_counter() - began

    def _keep(self, verdict: Verdict, line: str) -> None:
        self._verdicts[verdict.program_id] = line
        if verdict.fingerprint and not verdict.duplicate_of:
            self._by_fingerprint.setdefault(verdict.fingerprint, verdict.program_id)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.shutdown(cancel_futures=True)
        if self._evaluator is not None:
            self._evaluator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def whole(verdict: Verdict) -> Verdict:
    """Everything that the judge says."""
    return verdict


def cycles_only(verdict: Verdict) -> Verdict:
    """Latency, and no profile: the state of every program is the same."""
    return _blind(verdict, None)


def nothing(verdict: Verdict) -> Verdict:
    """As `cycles_only`, and no captured launches: operators know no sizes either."""
    return _blind(verdict, ())


def _blind(verdict: Verdict, captures: tuple[()] | None) -> Verdict:
    if verdict.latency is None:
        return verdict
    seen: dict[str, Any] = {"profile": None, "bottleneck": None, "tier": Tier.UNDERUTILIZED}
    if captures is not None:
        seen["captures"] = captures
    return verdict.model_copy(update=seen)


@dataclass(frozen=True)
class Arm:
    """One way of searching. `settings` are those of the islands; `island_options` may hold what they know before.

    Without `has_priors` every operator is expected to gain the same until something is known of it.
    """

    name: str
    n_islands: int = 4
    strategy: str = "map-elites"
    settings: Mapping[str, Any] = field(default_factory=dict)
    sight: Sight = whole
    island_options: Mapping[str, Any] = field(default_factory=dict)
    has_priors: bool = True


@dataclass(frozen=True)
class Trace:
    """How a search went: the lowest latency after each verdict, in microseconds (infinite while nothing is correct)."""

    arm: str
    problem: str
    rng_seed: int
    best_us: tuple[float, ...]
    evaluations: tuple[Evaluation, ...]


def search(problem: Problem, judge: CachedJudge, arm: Arm, rng_seed: int, n: int, in_flight: int = 2) -> Trace:
    """One search of `n` verdicts. Islands take turns, each with `in_flight` candidates that wait for the judge."""
    islands = [_island(problem, arm, index, rng_seed) for index in range(arm.n_islands)]
    rng = random.Random(f"{rng_seed}/migration")
    topology = make_topology("ring")
    waiting: deque[tuple[Island, Candidate]] = deque()
    seeds = [Seed(source=source, origin=problem.name) for source in problem.seeds]
    waiting.extend((island, candidate) for island in islands for candidate in island.seed(seeds))
    judged: list[Evaluation] = []
    seen: set[str] = set()
    while len(seen) < n:
        for island in islands:
            n_out = sum(other is island for other, _ in waiting)
            for candidate in island.ask(max(0, in_flight - n_out)):
                judge.expect(candidate)
                waiting.append((island, candidate))
        if not waiting:
            break
        island, candidate = waiting.popleft()
        verdict = judge.judge(candidate)
        # what another island proposed before costs a run nothing, and so does not count
        is_new = candidate.program_id not in seen and verdict.duplicate_of not in seen
        seen.add(candidate.program_id)
        island.tell([arm.sight(verdict)])
        if is_new:
            judged.append(Evaluation(candidate=candidate, verdict=verdict))
        for target in topology.targets(islands.index(island), len(islands), rng):
            islands[target].immigrate(island.due_migrants())
    return Trace(arm.name, problem.name, rng_seed, tuple(_running_best(judged)), tuple(judged))


def _island(problem: Problem, arm: Arm, index: int, rng_seed: int) -> Island:
    return Island(
        island_id=index,
        run_id=f"{arm.name}-{problem.name}-{rng_seed}",
        problem_id=problem.problem_id,
        entry_point=problem.entry_point,
        operators=_operators(arm),
        strategy=make_strategy(arm.strategy),
        rng=island_rng(rng_seed, index),
        settings=IslandSettings.model_validate(dict(arm.settings)),
        **arm.island_options,
    )


def _operators(arm: Arm) -> list[Operator]:
    operators = default_operators()
    if not arm.has_priors:
        for operator in operators:
            operator.prior = PRIOR
    return operators


def _running_best(judged: Sequence[Evaluation]) -> list[float]:
    best, found = float("inf"), []
    for evaluation in judged:
        if evaluation.verdict.latency is not None:
            best = min(best, evaluation.verdict.latency.device_us)
        found.append(best)
    return found


def bootstrap(groups: Sequence[Sequence[float]], statistic: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """The 95% interval of a statistic, by 2000 resamplings with a fixed seed: of problems, and of the values of each.

    Searches of one problem say much the same, so that they are no independent evidence on other problems.
    """
    rng = random.Random(0)
    found = []
    for _ in range(2000):
        chosen = rng.choices(groups, k=len(groups))
        found.append(statistic([value for group in chosen for value in rng.choices(group, k=len(group))]))
    found.sort()
    return found[49], found[1949]


def save(trace: Trace, path: Path) -> None:
    """One line more in a file of traces, without the programs."""
    line = {"arm": trace.arm, "problem": trace.problem, "rng_seed": trace.rng_seed}
    kept = [None if us == float("inf") else round(us, 3) for us in trace.best_us]
    with path.open("a") as file:
        file.write(json.dumps({**line, "best_us": kept}) + "\n")

"""The actors of a run: who is started, where, and how they are let go."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from db.actor import ArchiveActor
from db.errors import ClusterError, EvolveError
from db.records import DeviceKind, Problem
from evaluators.actor import start_evaluator, start_preparer
from evaluators.report import EvaluatorReport
from evaluators.settings import EvaluatorSettings
from evolve import cluster
from evolve.archipelago import Archipelago, OnChange
from evolve.cluster import ActorDied, WorkerFailed, answer, why_it_died
from evolve.config import RunConfig
from evolve.judging import ActorPool
from evolve.preflight import READER_WAIT_S
from evolve.remote_archive import RemoteArchive
from evolve.skew import SAME_VERSION, check_nodes, skew_of_others
from islands.knowledge import PriorKnowledge

CORES_PER_PREPARER = 4  # each compiles as many candidates side by side
MAX_PER_CORE = 8  # judging processes, where more are asked for than there are cores: each takes most of a gigabyte
RAY_PARTS = 10_000  # of a core: Ray counts no smaller ones
PREPARED_AHEAD = 1.5  # candidates in flight for each that can have a device context: the GPU never waits
CLOSE_S = 20.0
ABORT_S = 3.0  # for evaluators of a run that failed: one may be busy with its baseline


class Crew:
    """The archive, the evaluators, the preparers and the islands of one run."""

    def __init__(
        self,
        config: RunConfig,
        problem: Problem,
        device: DeviceKind,
        run_id: str,
        prior: PriorKnowledge | None = None,
        on_change: OnChange = lambda _: None,
    ) -> None:
        """`on_change` is told, in a line for people, who left the crew and who came."""
        self._config = config
        self._problem = problem
        self._device = device
        self._judging = settings_for(config, device)
        self._run_id = run_id
        self._prior = prior
        self._on_change = on_change
        self._archipelago: Archipelago | None = None
        self._preparers: list[Any] = []
        self._evaluators: list[Any] = []
        self._report: EvaluatorReport | None = None
        self.archive: Any = None
        self.evaluators = ActorPool(())
        self.preparers = ActorPool(())  # where there are none, an evaluator prepares too

    async def open(self) -> EvaluatorReport:
        """Start the actors, where Ray runs; say what judges here and what the baseline takes.

        All of them warm up at once: what takes longest, the evaluators, decides.

        Raises:
            ClusterError: a node has other software, a worker died while it started, there are fewer GPUs than
                evaluators, or they differ.
            ArchiveError, ArchiveBusyError, DeviceError, ProblemError, SeedError: as the parts say.
        """
        await asyncio.to_thread(check_nodes)
        self._evaluators = (
            self._start_evaluators()
        )  # first: Ray has one process ready for each core, others take longer
        self._preparers = self._start_preparers()
        self.archive = self._start_archive()
        self._archipelago = self._start_islands()
        reporting = [answer(actor.report.remote()) for actor in self._evaluators]
        try:
            _, *reports = await asyncio.gather(answer(self.archive.open.remote()), *reporting)
        except ActorDied as error:
            message = f"a worker of this run cannot start: {why_it_died(error)}"
            raise ClusterError(message, SAME_VERSION) from error
        self.evaluators = ActorPool(self._evaluators, lambda why: self._on_change(f"an evaluator died: {why}"))
        self.preparers = ActorPool(self._preparers or self._evaluators)
        self._report = agreed([_as_report(report) for report in reports])
        return self._report

    async def recruit(self, n_gpus: int) -> int:
        """Put GPUs to work that nobody uses, as far as they judge alike, and cores that came with them.

        Returns:
            How many of them are of no use: their evaluators cannot start, or differ.

        Raises:
            ClusterError: a node does not answer.
        """
        skewed = {node.node_id: difference for node, difference in await asyncio.to_thread(skew_of_others)}
        joining = [self._start_evaluator() for _ in range(n_gpus)]
        taken = await asyncio.gather(*(self._join(evaluator, skewed) for evaluator in joining))
        for _ in range(len(self._preparers), self._n_preparers() if self._preparers else 0):
            self._preparers.append(self._start_preparer())
            self.preparers.add(self._preparers[-1])
        return taken.count(False)

    async def _join(self, evaluator: Any, skewed: Mapping[str, str]) -> bool:
        """Whether an evaluator that was started during the run is one of the crew from now on."""
        assert self._report is not None
        try:
            if (node_id := await answer(evaluator.node_id.remote())) in skewed:
                raise ClusterError(skewed[node_id], SAME_VERSION)
            report = _as_report(await answer(evaluator.report.remote()))
            agreed([self._report, report])
        except (WorkerFailed, EvolveError) as error:
            reason = error.message if isinstance(error, EvolveError) else why_it_died(error)
            self._on_change(f"a GPU that came is not used: {reason}")
            cluster.kill([evaluator])
            return False
        self._evaluators.append(evaluator)
        self.evaluators.add(evaluator)
        self._on_change(f"a GPU came: {len(self._evaluators)} evaluators now")
        return True

    def _start_evaluators(self) -> list[Any]:
        return [self._start_evaluator() for _ in range(self._n_evaluators())]

    def _start_evaluator(self) -> Any:
        return start_evaluator(self._problem, self._judging, self._device, self._cores_each())

    def _start_preparers(self) -> list[Any]:
        return [self._start_preparer() for _ in range(self._n_preparers())]

    def _start_preparer(self) -> Any:
        return start_preparer(self._problem, self._judging, self._device, CORES_PER_PREPARER, self._cores_each())

    def _start_archive(self) -> RemoteArchive:
        """The archive's file is on the machine of the driver."""
        path = Path(self._config.archive).resolve()
        options = cluster.on_this_node()
        actor = ArchiveActor.options(**options).remote(str(path), wait_s=READER_WAIT_S)  # type: ignore[attr-defined]
        return RemoteArchive(actor)

    def _start_islands(self) -> Archipelago:
        shared = {
            "run_id": self._run_id,
            "problem_id": self._problem.problem_id,
            "entry_point": self._problem.entry_point,
            "strategy": self._config.strategy,
            "rng_seed": self._config.rng_seed,
            "settings": self._config.island_settings,
            "precision": self._config.precision,
            "prior": self._prior,
        }
        made_of = [{"island_id": index, **shared} for index in range(self._config.islands)]
        return Archipelago(made_of, self._n_island_processes(), self.archive, self._on_change)

    @property
    def islands(self) -> Sequence[Any]:
        """Called as actors are, however many share a process."""
        return self._archipelago.islands if self._archipelago else ()

    @property
    def n_wanted(self) -> int:
        """How many more evaluators the run would have, if there were GPUs for them."""
        if self._device is DeviceKind.CPU:
            return 0
        limit = self._config.cluster.n_evaluators
        return max(0, limit - len(self._evaluators)) if limit else cluster.count_gpus()

    @property
    def chains_per_island(self) -> int:
        """Enough candidates in flight to keep every device busy, and no more: what is proposed late knows more."""
        wanted = PREPARED_AHEAD * len(self._evaluators) * self._settings_in_flight() / self._config.islands
        most = self._config.search.in_flight or math.inf
        return max(1, math.ceil(min(wanted, most) / self._config.batch))

    def _settings_in_flight(self) -> int:
        return self._judging.n_concurrent_sessions if self._device is DeviceKind.CUDA else 2

    def _n_evaluators(self) -> int:
        wanted, found = self._config.cluster.n_evaluators, cluster.count_gpus()
        if self._device is DeviceKind.CPU:
            return wanted or 1
        if wanted > found:
            raise ClusterError(f"{wanted} evaluators need {wanted} GPUs, the cluster has {found}", "0 takes all GPUs")
        return wanted or found

    def _cores_each(self) -> float:
        n_evaluators = self._n_evaluators() if self._device is DeviceKind.CPU else 0
        return cores_each(self._n_preparers() + n_evaluators, cluster.count_cpus())

    def _n_preparers(self) -> int:
        """One more process that imports torch and Triton costs seconds of two cores; on a GPU it is always worth it."""
        by_cores = cluster.count_cpus() // (2 * CORES_PER_PREPARER)
        least = 1 if self._device is DeviceKind.CUDA else 0
        return self._config.cluster.n_preparers or max(least, by_cores)

    def _n_island_processes(self) -> int:
        """Islands think little: half of the cores of this machine can carry more of them than any run has."""
        return self._config.cluster.n_island_processes or max(1, (os.cpu_count() or 1) // 2)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(CLOSE_S if error is None else ABORT_S)

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Let evaluators and the archive finish, then end what is left; the archive ends when nobody knows it."""
        judges = [*self._preparers, *self._evaluators]
        await cluster.close_actors(judges, timeout_s)
        cluster.kill(judges)
        if self._archipelago is not None:
            self._archipelago.kill()
        if self.archive is not None:
            await cluster.close_actors([self.archive], CLOSE_S)


def cores_each(n_processes: int, n_cores: int) -> float:
    """The share of a core that Ray keeps for each process that judges on cores: every one of them has to find a place.

    Raises:
        ClusterError: there are more of them than so many cores carry.
    """
    if n_processes > MAX_PER_CORE * n_cores:
        message = f"{n_processes} evaluators and preparers are more than {MAX_PER_CORE} for each of {n_cores} cores"
        raise ClusterError(message, "0 takes what fits: --set cluster.n_evaluators=0 --set cluster.n_preparers=0")
    n_per_core = max(1, math.ceil(n_processes / n_cores))
    return math.floor(RAY_PARTS / n_per_core) / RAY_PARTS


def agreed(reports: Sequence[EvaluatorReport]) -> EvaluatorReport:
    """The report of evaluators that judge alike: verdicts of different GPUs or versions may not meet in one run.

    Library operations that any of their baselines calls are allowed.

    Raises:
        ClusterError: they judge on different hardware or with different software.
    """
    first = reports[0]
    for other in reports[1:]:
        if (other.hardware.hardware_id, other.versions) != (first.hardware.hardware_id, first.versions):
            raise ClusterError(
                f"evaluators differ: {first.hardware.name} {first.versions} and {other.hardware.name} {other.versions}",
                "run on nodes that are alike, or on fewer: --set cluster.n_evaluators=1",
            )
    extern_ops = tuple(sorted({name for report in reports for name in report.baseline.extern_ops}))
    return first.model_copy(update={"baseline": first.baseline.model_copy(update={"extern_ops": extern_ops})})


def settings_for(config: RunConfig, device: DeviceKind) -> EvaluatorSettings:
    """What the evaluators and preparers of a run are told. Where everything is modelled nothing is ranked before."""
    told: dict[str, object] = {"target": config.target, "precision": config.precision}
    if config.window and config.judging.secret_seed is None:  # error ratios are a part of what can be repeated
        told["secret_seed"] = random.Random(f"{config.rng_seed}/inputs").getrandbits(31)
    return config.judging.model_copy(update=told if device is DeviceKind.CUDA else {**told, "pre_rank": 0.0})


def _as_report(value: object) -> EvaluatorReport:
    if not isinstance(value, EvaluatorReport):
        raise TypeError(f"expected an EvaluatorReport, got {type(value).__name__}")
    return value

"""The actors of a run: who is started, where, and how they are let go."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from db.actor import ArchiveActor
from db.records import DeviceKind, Problem
from evaluators.actor import start_evaluator, start_preparer
from evaluators.report import EvaluatorReport
from evaluators.settings import EvaluatorSettings
from evolve import cluster
from evolve.cluster import answer
from evolve.config import RunConfig
from evolve.judging import ActorPool
from islands.actor import IslandActor

CORES_PER_PREPARER = 4  # each compiles as many candidates side by side
PREPARED_AHEAD = 1.5  # candidates in flight for each that can have a device context: the GPU never waits
CLOSE_S = 20.0


class Crew:
    """The archive, the evaluators, the preparers and the islands of one run."""

    def __init__(self, config: RunConfig, problem: Problem, device: DeviceKind, run_id: str) -> None:
        self._config = config
        self._problem = problem
        self._device = device
        self._judging = settings_for(config)
        self._run_id = run_id
        self.islands: list[Any] = []
        self._preparers: list[Any] = []
        self._evaluators: list[Any] = []
        self.archive: Any = None

    async def open(self, *, wait_s: float = 0.0) -> EvaluatorReport:
        """Start Ray and the actors; say what judges here and what the baseline takes.

        The archive is opened first: a run that cannot keep anything does not start.

        Raises:
            ClusterError, ArchiveError, ArchiveBusyError, DeviceError, ProblemError: as the parts say.
        """
        cluster.connect(self._config.cluster.address, needs_gpu=self._device is DeviceKind.CUDA)
        path = Path(self._config.archive).resolve()
        self.archive = ArchiveActor.options(**cluster.on_this_node()).remote(str(path), wait_s=wait_s)  # type: ignore[attr-defined]
        await answer(self.archive.open.remote())
        self.islands = [self._start_island(index) for index in range(self._config.islands)]
        self._preparers = [
            start_preparer(self._problem, self._judging, CORES_PER_PREPARER) for _ in range(self._n_preparers())
        ]
        self._evaluators = [start_evaluator(self._problem, self._judging, self._device) for _ in range(self._n_gpus())]
        reports = await asyncio.gather(*(answer(actor.report.remote()) for actor in self._evaluators))
        report: EvaluatorReport = reports[0]
        return report

    def _start_island(self, index: int) -> Any:
        """Islands think little and wait much: no core is kept for them."""
        return IslandActor.options(num_cpus=0).remote(  # type: ignore[attr-defined]
            island_id=index,
            run_id=self._run_id,
            problem_id=self._problem.problem_id,
            entry_point=self._problem.entry_point,
            strategy=self._config.strategy,
            rng_seed=self._config.rng_seed,
            settings=self._config.search,
            precision=self._config.precision,
        )

    @property
    def preparers(self) -> ActorPool:
        return ActorPool(self._preparers)

    @property
    def evaluators(self) -> ActorPool:
        return ActorPool(self._evaluators)

    @property
    def chains_per_island(self) -> int:
        """Enough candidates in flight to keep every device busy, and no more: what is proposed late knows more."""
        wanted = PREPARED_AHEAD * len(self._evaluators) * self._settings_in_flight()
        return max(1, math.ceil(wanted / self._config.islands / self._config.batch))

    def _settings_in_flight(self) -> int:
        return self._judging.n_concurrent_sessions if self._device is DeviceKind.CUDA else 2

    def _n_gpus(self) -> int:
        if self._config.cluster.n_evaluators:
            return self._config.cluster.n_evaluators
        return cluster.count_gpus() if self._device is DeviceKind.CUDA else 1

    def _n_preparers(self) -> int:
        by_cores = max(1, cluster.count_cpus() // (2 * CORES_PER_PREPARER))
        return self._config.cluster.n_preparers or by_cores

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let evaluators and the archive finish, then end the connection and with it what is left."""
        await cluster.close_actors([*self._preparers, *self._evaluators], timeout_s=CLOSE_S)
        if self.archive is not None:
            await cluster.close_actors([self.archive], timeout_s=CLOSE_S)
        cluster.disconnect()


def settings_for(config: RunConfig) -> EvaluatorSettings:
    """What the evaluators of a run are told."""
    return config.judging.model_copy(update={"target": config.target, "precision": config.precision})

"""Ray shells: preparers on CPUs, evaluators pinned to a GPU each. Everything they do is in plain classes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray

from db.records import Candidate, DeviceKind, LatencyKind, Problem, Profile, Verdict
from evaluators.evaluator import Evaluator, EvaluatorReport, EvaluatorSettings, Prepared
from evaluators.late_dynamo import delay_dynamo
from evaluators.opening import open_evaluator
from evaluators.zygotes import start_compiler

if TYPE_CHECKING:
    from evaluators.preparer import Preparer

N_RESTARTS = 8


@ray.remote(max_restarts=N_RESTARTS)
class PreparerActor:
    """Static gate, compilation and fingerprint on CPU cores. `max_concurrency` says how many candidates at once."""

    def __init__(self, problem: Problem, settings: EvaluatorSettings, device: DeviceKind) -> None:
        starting = ThreadPoolExecutor(1).submit(start_compiler)
        # meanwhile: what preparation imports at once
        import evaluators.preparer  # noqa: F401

        if device is DeviceKind.CUDA:  # an evaluator that measures leaves it to preparers to ask the reference
            delay_dynamo()

        self._asked = (problem, settings)
        self._zygote = starting.result()
        self._preparer: Preparer | None = None
        self._opening = threading.Lock()

    def prepare(self, candidate: Candidate, report: EvaluatorReport) -> Prepared:
        """See `Preparer.prepare`. `report` is an evaluator's: which GPU, and which library operations are allowed."""
        return self._opened(report).prepare(candidate)

    def close(self) -> None:
        self._zygote.close()

    def _opened(self, report: EvaluatorReport) -> Preparer:
        from evaluators.preparer import Preparer

        with self._opening:
            if self._preparer is None:
                self._preparer = Preparer(
                    *self._asked,
                    report.hardware,
                    extern_ops=report.baseline.extern_ops,
                    keeps_cache=report.baseline.kind is LatencyKind.MEASURED,
                    zygote=self._zygote,
                    forwards=report.forwards,
                    versions=report.versions,
                )
            return self._preparer


@ray.remote(max_restarts=N_RESTARTS)
class EvaluatorActor:
    """One evaluator: of one GPU (`num_gpus=1`), or of the latency model. Threads of the actor share it.

    The first call opens it, not the constructor: what a constructor raises reaches the caller as text only.
    """

    def __init__(self, problem: Problem, settings: EvaluatorSettings, device: DeviceKind) -> None:
        self._asked = (problem, settings, device)
        self._evaluator: Evaluator | None = None
        self._opening = threading.Lock()

    def report(self) -> EvaluatorReport:
        """The GPU that verdicts are for, what candidates are compared with, versions, isolation.

        Raises:
            DeviceError, ProblemError, ConfigError, SeedError: see `open_evaluator` and `Evaluator.baseline`.
        """
        return self._opened().report()

    def prepare(self, candidate: Candidate, report: EvaluatorReport) -> Prepared:  # noqa: ARG002
        """See `Evaluator.prepare`: as a `PreparerActor` would, which a small machine saves."""
        return self._opened().prepare(candidate)

    def evaluate(self, prepared: Prepared) -> Verdict:
        """See `Evaluator.evaluate`."""
        return self._opened().evaluate(prepared)

    def judge(self, candidate: Candidate) -> Verdict:
        """See `Evaluator.judge`."""
        return self._opened().judge(candidate)

    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile] = ()) -> list[Profile]:
        """See `Evaluator.profile`."""
        return self._opened().profile(candidates, provisional)

    def node_id(self) -> str:
        """The node of the cluster that it lives on."""
        return str(ray.get_runtime_context().get_node_id())

    def close(self) -> None:
        with self._opening:
            if self._evaluator is not None:
                self._evaluator.close()
                self._evaluator = None

    def _opened(self) -> Evaluator:
        with self._opening:
            if self._evaluator is None:
                self._evaluator = open_evaluator(*self._asked)
            return self._evaluator


def start_evaluator(problem: Problem, settings: EvaluatorSettings, device: DeviceKind, cores: float = 1.0) -> Any:
    """Starts an evaluator's actor: a whole GPU on CUDA, `cores` and no GPU for the model."""
    resources = {"num_gpus": 1} if device is DeviceKind.CUDA else {"num_gpus": 0, "num_cpus": cores}
    options = {**resources, "max_concurrency": settings.n_concurrent_sessions + 2}
    return EvaluatorActor.options(**options).remote(problem, settings, device)  # type: ignore[attr-defined]


def start_preparer(
    problem: Problem, settings: EvaluatorSettings, device: DeviceKind, n_at_once: int, cores: float = 1.0
) -> Any:
    """Starts a preparer's actor that compiles up to `n_at_once` candidates side by side; Ray keeps `cores` for it.

    It warms up while the evaluator of the run measures its baselines.
    """
    options = {"num_cpus": cores, "max_concurrency": n_at_once + 1}
    return PreparerActor.options(**options).remote(problem, settings, device)  # type: ignore[attr-defined]

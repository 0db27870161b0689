"""Judging files as programs of the whole model: one evaluator for all attempts, and every verdict in the archive."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from db.archive import ProgramArchive
from db.records import Candidate, DeviceKind, Evaluation, LatencyKind, Lineage, Problem, Run, RunStatus, Verdict
from evaluators.decomposition.classify import GAIN
from evaluators.decomposition.decompose import Way
from evaluators.evaluator import Evaluator
from evaluators.opening import open_evaluator
from evaluators.report import EvaluatorReport
from evolve.config import RunConfig
from evolve.crew import settings_for
from evolve.models.records import STITCH, Attempt, PartResult
from evolve.preflight import READER_WAIT_S


def with_fixed_shapes(problem: Problem) -> Problem:
    """The problem with its full sizes everywhere: a compiled module, and so its parts, knows no others."""
    sizes = problem.full.sizes
    workloads = tuple(workload.model_copy(update={"sizes": sizes}) for workload in problem.workloads)
    return problem.model_copy(update={"workloads": workloads})


class WholeJudge:
    """The judge of one model on the GPU of this machine. The GPU is free between `open` and the first attempt."""

    def __init__(self, problem: Problem, config: RunConfig, run_id: str) -> None:
        self.problem = with_fixed_shapes(problem)
        self._config = config
        self._run_id = run_id
        self.report: EvaluatorReport | None = None  # once it was opened
        self._run: Run | None = None
        self._evaluator: Evaluator | None = None
        self._resources = contextlib.ExitStack()
        self._n_attempts = 0

    def open(self) -> Way:
        """Times the ways of running the module, and notes the run; answers with the way of compiling to take apart.

        That is max-autotune where it is faster by more than 3%.

        Raises:
            DeviceError, ProblemError: the module cannot run here, or its reference fails.
            ArchiveError: the archive cannot be written.
        """
        with self._opened() as evaluator:
            report = self.report = evaluator.report()
        self._run = Run(
            run_id=self._run_id,
            problem_id=self.problem.problem_id,
            rng_seed=self._config.rng_seed,
            device=DeviceKind.CUDA,
            hardware=report.hardware,
            precision=self._config.precision,
            latency_kind=LatencyKind.MEASURED,
            config=self._config.model_dump(mode="json"),
            versions=report.versions,
            status=RunStatus.FINISHED,  # what can be resumed are the searches of its parts
            started_at=time.time(),
        )
        with self._archive() as archive:
            archive.add_problem(self.problem)
            archive.add_run(self._run)
        return way_of({t.name: t.device_us for t in report.baseline.times if t.device_us is not None})

    def judge(self, source: str, parts: Sequence[PartResult]) -> Attempt:
        """The verdict on a file, which is in the archive when this returns."""
        if self._evaluator is None:
            self._evaluator = self._resources.enter_context(self._opened())
        candidate = self._candidate(source, parts)
        verdict = self._evaluator.judge(candidate)
        with self._archive() as archive:
            archive.insert([Evaluation(candidate=candidate, verdict=verdict)])
        return attempt_of(source, parts, verdict)

    def finish(self, stop_reason: str) -> None:
        """Notes in the archive how it ended."""
        if self._run is not None:
            ended = self._run.model_copy(update={"finished_at": time.time(), "stop_reason": stop_reason})
            with self._archive() as archive:
                archive.update_run(ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._resources.close()

    def _opened(self) -> Evaluator:
        return open_evaluator(self.problem, settings_for(self._config, DeviceKind.CUDA), DeviceKind.CUDA)

    def _archive(self) -> contextlib.closing[ProgramArchive]:
        return contextlib.closing(ProgramArchive.open(Path(self._config.archive), wait_s=READER_WAIT_S))

    def _candidate(self, source: str, parts: Sequence[PartResult]) -> Candidate:
        self._n_attempts += 1
        return Candidate(
            candidate_id=f"{self._run_id}-0-{self._n_attempts:06d}",
            run_id=self._run_id,
            problem_id=self.problem.problem_id,
            island=0,
            source=source,
            entry_point=self.problem.entry_point,
            lineage=Lineage(
                operator=STITCH,
                parents=tuple(part.found.program_id for part in parts),
                detail=", ".join(part.name for part in parts),
            ),
        )


def way_of(times_us: Mapping[str, float]) -> Way:
    """The way of compiling whose output is worth taking apart, by the times of the baselines."""
    plain, tuned = times_us.get("compile", math.inf), times_us.get("max-autotune", math.inf)
    return "max-autotune" if tuned * GAIN < plain else "compile"


def attempt_of(source: str, parts: Sequence[PartResult], verdict: Verdict) -> Attempt:
    """What a verdict on a whole model says."""
    refusing = next((gate for gate in verdict.gates if not gate.passed), None)
    return Attempt(
        parts=tuple(part.name for part in parts),
        source=source,
        program_id=verdict.program_id,
        is_correct=verdict.is_correct,
        replaces_baseline=verdict.replaces_baseline,
        speedup=verdict.latency.speedup if verdict.latency else None,
        latency_us=verdict.latency.device_us if verdict.latency else None,
        error_ratio=verdict.error_ratio,
        roofline_efficiency=verdict.profile.roofline_efficiency if verdict.profile else None,
        refused_by=str(refusing.gate) if refusing else "",
        reason=refusing.reason if refusing else "",
    )

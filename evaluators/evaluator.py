"""The evaluator: one candidate in, one verdict out. Light: importing this imports neither torch nor triton.

`CudaEvaluator` measures on one GPU, `ModelledEvaluator` computes a latency for a target GPU on the CPU. Both run the
same cascade (`evaluators.cascade`) and answer with the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pydantic import Field

from db.records import (
    Candidate,
    Capture,
    GateResult,
    Hardware,
    Profile,
    Record,
    Verdict,
)
from evaluators.forwards import Forward
from evaluators.report import BaselineReport, BaselineTime, EvaluatorReport
from evaluators.settings import EvaluatorSettings

__all__ = [
    "BaselineReport",
    "BaselineTime",
    "Evaluator",
    "EvaluatorReport",
    "EvaluatorSettings",
    "Prepared",
]


class Prepared(Record):
    """A candidate after all that needs no GPU: policy, compilation, capture, fingerprint.

    `verdict` is there when a gate refused already. `cache_dir` is a folder that holds the compiled kernels
    in Triton's own layout, or empty; whoever evaluates a prepared candidate removes it.
    """

    candidate: Candidate
    gates: tuple[GateResult, ...] = ()
    captures: tuple[Capture, ...] = ()
    fingerprint: str = ""
    verdict: Verdict | None = None
    cache_dir: str = ""
    modelled_us: float | None = None  # where candidates are ranked before they spend GPU time
    seconds: dict[str, float] = Field(default_factory=dict)


class Evaluator(ABC):
    """Judges candidates of one problem on one device. Safe to call from several threads at once.

    A bad candidate is a verdict with a reason, never an exception. A broken machine is an exception
    (`db.errors.DeviceError`).
    """

    hardware: Hardware
    settings: EvaluatorSettings

    @property
    @abstractmethod
    def baseline(self) -> BaselineReport:
        """What candidates are compared with. Raises `SeedError` where a baseline needs a seed and none works."""

    @property
    @abstractmethod
    def isolation(self) -> str:
        """How candidates are kept apart here: "namespaces" or "subreaper"."""

    @property
    @abstractmethod
    def missing(self) -> tuple[str, ...]:
        """The names of the sandbox's layers that this machine refuses (`sandbox.Layer`)."""

    @property
    def forwards(self) -> tuple[Forward, ...]:
        """What preparers need to know of the workloads, where this evaluator has found it out."""
        return ()

    def report(self) -> EvaluatorReport:
        """What a run has to know about its evaluator."""
        from evaluators.versions import software_versions

        return EvaluatorReport(
            hardware=self.hardware,
            baseline=self.baseline,
            versions=software_versions(),
            isolation=self.isolation,
            missing=self.missing,
            forwards=self.forwards,
        )

    @abstractmethod
    def prepare(self, candidate: Candidate) -> Prepared:
        """Everything that needs no GPU: host-code policy, compilation for the target, fingerprint."""

    @abstractmethod
    def evaluate(self, prepared: Prepared) -> Verdict:
        """Correctness, model, integrity and speed of a prepared candidate."""

    @abstractmethod
    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile] = ()) -> list[Profile]:
        """Why they are not faster, as precisely as this machine can tell; in order, one for each.

        Never raises for what a candidate, a tool or a driver does: where there are no counters, the provisional profile
        comes back with a note that says why, and its source is not `ncu`. Takes seconds; many at once cost less each.

        Args:
            candidates: programs that passed the gates, of this evaluator's problem.
            provisional: what their verdicts say already, in the same order.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends every child process and gives device memory back."""

    def judge(self, candidate: Candidate) -> Verdict:
        """The whole cascade on one candidate."""
        return self.evaluate(self.prepare(candidate))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

"""What judging may be told, apart from the problem. Light: importing this imports neither torch nor triton."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from db.records import PrecisionClass

Way = Literal["eager", "compile", "max-autotune"]  # of running a reference that is a module
WAYS: tuple[Way, ...] = ("eager", "compile", "max-autotune")


class EvaluatorSettings(BaseModel):
    """Settings of an evaluator. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str = "h100"  # GPU that a modelled latency is for; on CUDA the detected GPU counts
    precision: PrecisionClass = PrecisionClass.REFERENCE
    n_concurrent_sessions: int = Field(6, ge=1)  # candidates that have a context at once; one at a time is timed
    prepare_deadline_s: float = Field(60.0, gt=0)
    evaluate_deadline_s: float = Field(60.0, gt=0)
    pre_rank: float = Field(0.0, ge=0)  # judge nothing that the model expects to be slower than its parent times this
    secret_seed: int | None = None  # drawn per run when None
    baselines: tuple[Way, ...] = Field(WAYS, min_length=1)  # the fastest counts

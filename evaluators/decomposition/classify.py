"""What became of a model: one outcome, and where nothing was gained, the cause. Pure functions over records."""

from __future__ import annotations

from enum import StrEnum

from db.records import Record
from evaluators.decomposition.records import Decomposition

GAIN = 1.03  # faster by more than this is optimized; slower than its inverse loses to the baseline
SMALL_SHARE = 0.01  # of device time: what is below is left alone
MOST_EXTERN = 0.95  # of device time: above, only the whole module is worth a try

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "linear", "matmul", "_int_mm", "_scaled_mm", "bias_addmm")


class ModelOutcome(StrEnum):
    """The words of the table that a benchmark prints."""

    OPTIMIZED = "optimized"
    MATCHED = "matched"
    SYNTHESIS_FAILED = "matched (synthesis failed)"
    FALLBACK = "fallback"


class RootCause(StrEnum):
    """Why the answer is the baseline."""

    GEMM = "GEMM-dominant"
    CONVOLUTION = "conv-dominant"
    NO_KERNELS = "no Triton kernels"
    SPEED = "speed gate"
    CORRECTNESS = "correctness"
    NOT_DECOMPOSED = "not decomposed"
    SEARCHES = "searches failed"


class ModelResult(Record):
    """An outcome with its reason in words. `cause` is there for a fallback alone."""

    outcome: ModelOutcome
    speedup: float | None = None
    cause: RootCause | None = None
    reason: str = ""


def whole_only(decomposition: Decomposition) -> tuple[RootCause, str] | None:
    """Why only the whole module can be tried, or None where there are parts to search."""
    if decomposition.graph is None:
        cause = RootCause.NOT_DECOMPOSED if decomposition.n_graphs else RootCause.NO_KERNELS
        return cause, decomposition.reason
    if not decomposition.graph.output.launches:
        return RootCause.NO_KERNELS, f"all of the time goes to {_libraries(decomposition)}"
    if decomposition.extern_share >= MOST_EXTERN:
        share = f"{decomposition.extern_share:.1%} of device time goes to {_libraries(decomposition)}"
        return dominant_library(decomposition), share
    if not decomposition.parts:
        return RootCause.NOT_DECOMPOSED, "no part can be searched by itself: " + _why_left(decomposition)
    return None


def dominant_library(decomposition: Decomposition) -> RootCause:
    """Products or convolutions, by their share of device time."""
    convolutions = sum(s.share for s in decomposition.shares if s.is_extern and is_convolution(s.name))
    return RootCause.CONVOLUTION if convolutions > decomposition.extern_share / 2 else RootCause.GEMM


def is_convolution(name: str) -> bool:
    return "conv" in name


def is_product(name: str) -> bool:
    """Whether a library's operation is a matrix product: "aten.addmm", "extern_kernels.mm"."""
    return name.removesuffix(".default").rpartition(".")[2] in _PRODUCTS


def outcome_of(
    speedup: float | None,
    *,
    refused_by: str = "",
    was_synthesised: bool | None = None,
    alone: tuple[RootCause, str] | None = None,
) -> ModelResult:
    """The outcome of a search over a model.

    Args:
        speedup: baseline over the best model that passed the gates; None where none did.
        refused_by: the gate that refused the last one: "model", "correctness", "speed".
        was_synthesised: whether a first kernel was made where Inductor had none; None where none was asked for.
        alone: the answer of `whole_only`.
    """
    if speedup is not None and speedup > GAIN:
        return ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=speedup)
    if was_synthesised is False:
        return ModelResult(outcome=ModelOutcome.SYNTHESIS_FAILED, speedup=1.0, reason="no first kernel was right")
    if alone is not None:
        return ModelResult(outcome=ModelOutcome.FALLBACK, speedup=1.0, cause=alone[0], reason=alone[1])
    if speedup is not None and speedup >= 1 / GAIN:
        return ModelResult(outcome=ModelOutcome.MATCHED, speedup=speedup)
    cause = RootCause.SPEED if speedup is not None or refused_by == "speed" else RootCause.CORRECTNESS
    reason = f"the best was {1 / speedup:.2f} times slower" if speedup else f"refused by the {refused_by} gate"
    return ModelResult(outcome=ModelOutcome.FALLBACK, speedup=1.0, cause=cause, reason=reason)


def _libraries(decomposition: Decomposition) -> str:
    times: dict[str, float] = {}
    for share in decomposition.shares:
        if share.is_extern:
            times[share.name] = times.get(share.name, 0.0) + share.share
    ordered = sorted(times, key=lambda name: -times[name])
    return ", ".join(ordered[:3]) or "nothing that is known"


def _why_left(decomposition: Decomposition) -> str:
    return "; ".join(dict.fromkeys(part.reason for part in decomposition.left_alone))[:300]

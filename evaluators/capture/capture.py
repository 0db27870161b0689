"""The judge's side of capture and trace: asks a child, and takes its answer as the candidate's word.

Imports neither torch nor triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from db.records import Capture, Hardware, TensorSpec
from evaluators.capture.traffic import LaunchTrace
from evaluators.sandbox.client import ChildEnded, Exit, Zygote

Scalar = int | float | bool | str | None
InputSpec = TensorSpec | Scalar

CAPTURE_JOB = "evaluators.capture.job:capture"
TRACE_JOB = "evaluators.capture.trace:trace"
CAPTURE_PRELOAD = ("evaluators.capture.job:warm_up",)  # for the zygote that compiles
TRACE_PRELOAD = ("evaluators.capture.trace:warm_up",)  # for the zygote that interprets


class CaptureFailed(Exception):  # noqa: N818  a candidate's answer, not an error of the judge
    """The candidate could not be captured or traced. `is_unsupported`: it may be right, but not to be seen here."""

    def __init__(self, reason: str, is_unsupported: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_unsupported = is_unsupported


def capture_candidate(
    zygote: Zygote,
    *,
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    input_specs: Sequence[InputSpec],
    weight_specs: Mapping[str, TensorSpec],
    workload_name: str,
    hardware: Hardware,
    deadline_s: float,
    cache_from: str | Path = "",
) -> Capture:
    """Every launch, compiled for `hardware`, and every torch operation of one forward. The zygote must compile.

    `cache_from` is a folder with kernels that Triton has compiled already; see `Zygote.spawn`.

    Raises:
        CaptureFailed: it does not compile, its host code fails, or it did not answer in time.
        SandboxError: the zygote has ended.
    """
    capture, _ = capture_with_cache(
        zygote,
        _payload(source, entry_point, init_args, input_specs, weight_specs, workload_name, hardware, cache_from),
        deadline_s=deadline_s,
        keep_workspace=False,
    )
    return capture


def capture_with_cache(
    zygote: Zygote, payload: dict[str, Any], *, deadline_s: float, keep_workspace: bool
) -> tuple[Capture, Path]:
    """As `capture_candidate`, and the folder in which Triton left what it compiled (the caller's, if it is kept)."""
    reply, cache_dir = _ask(zygote, CAPTURE_JOB, {**payload, "keep_workspace": keep_workspace}, deadline_s)
    try:
        return Capture.model_validate(reply.get("capture")), cache_dir
    except ValidationError as error:
        raise CaptureFailed(f"the child sent no capture: {error.errors()[0]['msg']}") from None


def trace_candidate(
    zygote: Zygote,
    *,
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    input_specs: Sequence[InputSpec],
    weight_specs: Mapping[str, TensorSpec],
    workload_name: str,
    hardware: Hardware,
    deadline_s: float,
) -> list[LaunchTrace]:
    """What each launch of one forward loads, stores and computes. The zygote must interpret. Raises as capture does."""
    payload = _payload(source, entry_point, init_args, input_specs, weight_specs, workload_name, hardware)
    reply, _ = _ask(zygote, TRACE_JOB, payload, deadline_s)
    try:
        return [LaunchTrace.model_validate(trace) for trace in reply.get("traces", ())]
    except (ValidationError, TypeError) as error:
        raise CaptureFailed(f"the child sent no traces: {error}", is_unsupported=True) from None


def _payload(
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    input_specs: Sequence[InputSpec],
    weight_specs: Mapping[str, TensorSpec],
    workload_name: str,
    hardware: Hardware,
    cache_from: str | Path = "",
) -> dict[str, Any]:
    return {
        "source": source,
        "entry_point": str(entry_point),
        "init_args": list(init_args),
        "input_specs": [_plain(spec) for spec in input_specs],
        "weight_specs": {name: _plain(spec) for name, spec in weight_specs.items()},
        "workload": workload_name,
        "hardware": hardware.model_dump(mode="json"),
        "cache_from": str(cache_from),
    }


def _plain(spec: InputSpec) -> Any:
    return spec.model_dump(mode="json") if isinstance(spec, TensorSpec) else spec


def _ask(zygote: Zygote, job: str, payload: dict[str, Any], deadline_s: float) -> tuple[dict[str, Any], Path]:
    """The child's answer. Raises `CaptureFailed` for an answer that says why not, and for none."""
    with zygote.spawn(job, payload, deadline_s=deadline_s) as child:
        try:
            reply = child.receive()
        except ChildEnded as ended:
            raise CaptureFailed(_reason_of(ended.exit, deadline_s)) from None
        if "failed" in reply:
            raise CaptureFailed(str(reply["failed"]), bool(reply.get("is_unsupported")))
        return reply, child.cache_dir


def _reason_of(exit: Exit, deadline_s: float) -> str:
    if exit.kind == "timeout":
        return f"building, running on fake tensors and compiling took more than {deadline_s:g} s"
    return f"the child ended before it answered: {exit.kind}: {exit.detail}"

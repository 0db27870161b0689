"""Integrity gate, first version: what the judge can hold against a child's word.

Outputs are poisoned before every check (see `evaluators.cuda`), so a program that computes nothing shows its poison.
Here: inputs must be unchanged, kernels must matter, the child's clock must agree with the judge's, and nothing is
faster than memory allows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from db.records import Gate, GateResult, Hardware
from evaluators.model.constants import FITTED

FLOOR_SLACK = 0.97
# What a message to a child and back costs beside the launches, and how much slower the judge may see them.
CLOCK_OVERHEAD_S = 0.01
CLOCK_FACTOR = 1.5
# How much longer a launch may take on inputs that it never saw, and what a full cache costs it at most
FRESH_FACTOR = 1.3
FRESH_OVERHEAD_US = 0.5


def poison_(output: Tensor) -> None:
    """Fills an output buffer, in place, with what no honest program leaves behind: NaN, or the lowest integer + 89."""
    if output.is_floating_point() or output.is_complex():
        output.fill_(float("nan"))
    elif output.dtype == torch.bool:
        output.view(torch.uint8).fill_(0xA5)
    else:
        output.fill_(torch.iinfo(output.dtype).min + (89 if output.dtype != torch.uint8 else 0xA5))


def has_same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits, NaN payloads included."""
    if a.numel() == 0:
        return True
    return bool(torch.equal(_bits(a), _bits(b)))


def _bits(values: Tensor) -> Tensor:
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}[values.element_size()]
    return (torch.view_as_real(values) if values.element_size() == 16 else values).view(width)


def check_inputs(given: Sequence[object], kept: Sequence[object]) -> GateResult:
    """Refuses a program that wrote to its inputs. `kept` are copies that it never saw."""
    for i, (a, b) in enumerate(zip(given, kept, strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and not has_same_bytes(a, b):
            return GateResult(gate=Gate.INTEGRITY, passed=False, reason=f"input {i} was changed by the program")
    return GateResult(gate=Gate.INTEGRITY, passed=True)


def check_ghost(same_without_kernels: Sequence[bool]) -> GateResult:
    """Refuses a program whose kernels change nothing: a library that its host code calls does all of the work.

    Args:
        same_without_kernels: for each input set on which host code called such a library, whether the outputs were as
            right when no kernel of the program ran.
    """
    is_ghost = bool(same_without_kernels) and all(same_without_kernels)
    reason = "its kernels change nothing: without them its outputs are the same" if is_ghost else ""
    return GateResult(gate=Gate.INTEGRITY, passed=not is_ghost, reason=reason)


def floor_us(moved_bytes: int, hardware: Hardware) -> float:
    """Time to move every input and output byte once, in microseconds, at the bandwidth of a program that only reads:
    what writes as well, as a copy does, is slower."""
    return moved_bytes / (hardware.dram_gb_s * FITTED.read_gain * 1e3)


def check_floor(device_us: float, moved_bytes: int, rotated_bytes: int, hardware: Hardware) -> GateResult:
    """Refuses a latency that memory cannot deliver.

    Args:
        device_us: claimed latency of one launch.
        moved_bytes: bytes of all inputs and outputs of one launch.
        rotated_bytes: bytes that the launches of one replay touch before the first comes again; of these, the L2
            may still hold its own size.
    """
    cached = min(1.0, hardware.l2_bytes / rotated_bytes) if rotated_bytes else 1.0
    least = FLOOR_SLACK * floor_us(moved_bytes, hardware) * (1 - cached)
    if device_us >= least:
        return GateResult(gate=Gate.INTEGRITY, passed=True, evidence={"least_us": least})
    reason = (
        f"{device_us:.4g} us is faster than memory: inputs and outputs are {moved_bytes / 1e6:.4g} MB, "
        f"which takes at least {least:.4g} us on {hardware.name}; not all of the work is done"
    )
    return GateResult(gate=Gate.INTEGRITY, passed=False, reason=reason)


def check_fresh(fresh_us: float, device_us: float) -> GateResult:
    """Refuses a program that is slower on inputs that it never saw: it keeps answers of those that it has seen."""
    if fresh_us <= FRESH_FACTOR * device_us + FRESH_OVERHEAD_US:
        return GateResult(gate=Gate.INTEGRITY, passed=True, evidence={"fresh_us": fresh_us})
    reason = (
        f"a launch takes {fresh_us:.4g} us on inputs that it has not seen and {device_us:.4g} us on others: "
        "it keeps what it computed before"
    )
    return GateResult(gate=Gate.INTEGRITY, passed=False, reason=reason)


def check_clock(replayed_s: float, sustained_s: float, watched_s: float) -> GateResult:
    """Refuses a child whose claims do not fit the judge's own clock over the same work.

    Args:
        replayed_s: what the work should take by the latency that the child claimed before.
        sustained_s: what it claims that the work took without a pause. No more can pass than the judge saw.
        watched_s: what the judge saw, messages included.
    """
    most = CLOCK_FACTOR * min(replayed_s, sustained_s) + CLOCK_OVERHEAD_S
    if sustained_s <= watched_s <= most:
        return GateResult(gate=Gate.INTEGRITY, passed=True)
    reason = (
        f"the program claims {1e3 * replayed_s:.4g} and {1e3 * sustained_s:.4g} ms for what the judge saw take "
        f"{1e3 * watched_s:.4g} ms: its timing cannot be trusted"
    )
    return GateResult(gate=Gate.INTEGRITY, passed=False, reason=reason)

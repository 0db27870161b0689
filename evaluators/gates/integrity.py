"""Integrity gate, first version: what the judge can hold against a child's word.

Outputs are poisoned before every check (see `evaluators.cuda`), so a program that computes nothing shows its poison.
Here: inputs must be unchanged, kernels must matter, the child's clock must agree with the judge's, and nothing is
faster than memory allows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from db.records import Gate, GateResult, Hardware
from evaluators.gates.speed import median_interval
from evaluators.model.constants import FITTED

FLOOR_SLACK = 0.97
CLOCK_OVERHEAD_S = 0.001  # of a message to a child and back, beside the launches
# How much slower the judge may see work than the child says that it took, and than it claimed for it before: a GPU that
# is kept busy may lower its clock.
CLOCK_FACTOR = 1.1
EARLIER_FACTOR = 1.2
# Beyond the noise of timing: how much longer a replay may take on inputs that nobody has seen than on the same again
FRESH_SLACK = 0.01
DISTURBED = 3.0  # margins by which a replay on fresh inputs may be faster before both are taken for disturbed
MIN_SLOWER_LOOKS = 6  # fewer have no 95% interval


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
    return bool(torch.equal(bits(a), bits(b)))


def differing(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[int]:
    """Positions of the pairs of one shape and dtype that hold other bits; the device is waited for once."""
    found = [(bits(a) != bits(b)).any() for a, b in pairs]
    return torch.stack(found).nonzero().flatten().tolist() if found else []


def bits(values: Tensor) -> Tensor:
    """The same memory as whole numbers, which every operation takes: those on lists of tensors do not know every dtype.
    Values that are conjugated or negated only when they are read are written out first."""
    values = values.detach().resolve_conj().resolve_neg()
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}[values.element_size()]
    return (torch.view_as_real(values) if values.element_size() == 16 else values).view(width)


def check_inputs(given: Sequence[object], kept: Sequence[object]) -> GateResult:
    """Refuses a program that wrote to its inputs. `kept` are copies that it never saw."""
    for i, (a, b) in enumerate(zip(given, kept, strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and not has_same_bytes(a, b):
            return GateResult(gate=Gate.INTEGRITY, passed=False, reason=f"input {i} was changed by the program")
    return GateResult(gate=Gate.INTEGRITY, passed=True)


def check_weights(given: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> GateResult:
    """Refuses a program that wrote to the reference's weights. `kept` are copies that it never saw."""
    names = list(kept)
    changed = [names[i] for i in differing([(given[name], kept[name]) for name in names])]
    reason = f"weight {changed[0]} was changed by the program" if changed else ""
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


def check_canaries(are_whole: Sequence[bool]) -> GateResult:
    """Refuses a program that wrote behind the end of what it was given."""
    reason = "" if all(are_whole) else "it wrote to memory behind the end of its inputs or outputs"
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


def check_state(changes: Sequence[str]) -> GateResult:
    """Refuses a program that changed its process: flags of torch, functions, threads, weights."""
    reason = f"it changed its process: {'; '.join(changes)}"[:500] if changes else ""
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


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


def check_fresh(ratios: Sequence[float], noise: float, least: int) -> GateResult | None:
    """Refuses a program that is slower on inputs that it never saw: it keeps answers of those that it has seen.

    Args:
        ratios: of one look each, the time of a replay on inputs that nobody has seen over that of the next one, on the
            same inputs. Where the first is much faster, somebody else disturbed the second: such a look says nothing.
        noise: relative difference that timing alone may produce.
        least: looks that can clear a program.

    Returns:
        None when another look is needed: a no needs six, all of which (or nearly all of more) are slower.
    """
    margin = noise + FRESH_SLACK
    told = [ratio for ratio in ratios if ratio > 1 - DISTURBED * margin]
    if not told:
        return None
    slower = median_interval(told)
    if len(told) >= MIN_SLOWER_LOOKS and slower.low > 1 + margin:
        reason = (
            f"a launch takes {slower.median:.3f} times as long on inputs that it has not seen "
            f"[{slower.low:.3f}, {slower.high:.3f}]: it keeps what it computed before"
        )
        return GateResult(gate=Gate.INTEGRITY, passed=False, reason=reason)
    if len(told) >= least and slower.median <= 1 + margin:
        return GateResult(gate=Gate.INTEGRITY, passed=True, evidence={"fresh_ratio": slower.median})
    return None


def check_clock(replayed_s: float, sustained_s: float, watched_s: float, spare_s: float = 0.0) -> GateResult:
    """Refuses a child whose claims do not fit the judge's own clock over the same work.

    Args:
        replayed_s: what the work should take by the latency that the child claimed before.
        sustained_s: what it claims that the work took without a pause. No more can pass than the judge saw.
        watched_s: what the judge saw, messages included.
        spare_s: what messages are known to cost, if more than usual.
    """
    most = min(EARLIER_FACTOR * replayed_s, CLOCK_FACTOR * sustained_s) + max(CLOCK_OVERHEAD_S, spare_s)
    if sustained_s <= watched_s <= most:
        return GateResult(gate=Gate.INTEGRITY, passed=True)
    reason = (
        f"the program claims {1e3 * replayed_s:.4g} and {1e3 * sustained_s:.4g} ms for what the judge saw take "
        f"{1e3 * watched_s:.4g} ms: its timing cannot be trusted"
    )
    return GateResult(gate=Gate.INTEGRITY, passed=False, reason=reason)


def check_rounds(claimed_s: Sequence[float], watched_s: Sequence[float], control_s: Sequence[float]) -> GateResult:
    """As `check_clock`, for paired rounds: medians, since a process that makes its context stalls single rounds.

    Args:
        claimed_s: what the child says that its share of each round took.
        watched_s: what the judge saw of each, messages included.
        control_s: what the judge saw of the baseline's rounds beyond what that claims: the baseline does not lie.
    """
    claimed = statistics.median(claimed_s)
    return check_clock(claimed, claimed, statistics.median(watched_s), spare_s(control_s))


def spare_s(control_s: Sequence[float]) -> float:
    """What messages may cost on a busy machine, by what they cost in rounds of the baseline."""
    return 2 * statistics.median(control_s)

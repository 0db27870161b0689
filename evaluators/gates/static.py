"""Static gate: is it a legal program? Host code may allocate, view and launch; kernels compute.

`check_policy` reads the source, `check_capture` what a dry run on fake tensors did. Only code that runs at import or
that the entry point can reach is read: an unused reference in the same file hurts nobody.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Collection, Iterator, Mapping

from db.errors import ConfigError
from db.records import Capture, Gate, GateResult, Hardware, Launch
from evaluators.gates import policy
from evaluators.gates.host_code import host_findings
from evaluators.gates.reachable import (
    bound_names,
    dotted_name,
    full_name,
    is_kernel,
    module_aliases,
    reachable_statements,
)
from evaluators.hardware import load_hardware

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Technical Specifications": grid dimensions
MAX_WARPS = 32
MOST_FINDINGS = 5


def check_policy(source: str, entry_point: str, allowed_ops: Collection[str] = ()) -> GateResult:
    """Reads host code. `allowed_ops` are the operations of libraries that the compiled baseline calls ("aten.mm")."""
    start = time.perf_counter()
    try:
        found = sorted(_findings(source, entry_point, policy.spellings_of(frozenset(allowed_ops))))
    except RecursionError:
        found = [(1, "an expression is nested too deeply to be read")]
    findings = found[:MOST_FINDINGS]
    reason = "; ".join(f"line {line}: {what}" for line, what in findings)
    return GateResult(
        gate=Gate.STATIC,
        passed=not findings,
        reason=reason,
        evidence={"lines": [line for line, _ in findings]} if findings else {},
        seconds=time.perf_counter() - start,
    )


def _findings(source: str, entry_point: str, allowed: frozenset[str]) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield getattr(error, "lineno", None) or 1, f"the source does not parse: {getattr(error, 'msg', error)}"
        return
    entry = next((s for s in tree.body if getattr(s, "name", None) == entry_point), None)
    if not isinstance(entry, ast.ClassDef | ast.FunctionDef):
        yield 1, f"the program defines no {entry_point} at the top level"
        return
    statements, aliases = reachable_statements(tree, entry_point), module_aliases(tree)
    yield from _entry_findings(entry, aliases)
    others = [n for n in ast.walk(tree) if n is not entry and entry_point in bound_names(n)]
    if others:
        yield getattr(others[0], "lineno", entry.lineno), f"{entry_point} is bound more than once"
    if not any(is_kernel(node, aliases) for s in statements for node in ast.walk(s)):
        yield entry.lineno, f"{entry_point} reaches no @triton.jit kernel; the work has to be done in kernels"
    yield from host_findings(tree, entry_point, allowed)


def _entry_findings(entry: ast.ClassDef | ast.FunctionDef, aliases: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    if isinstance(entry, ast.FunctionDef):
        return
    bases = [dotted_name(base) for base in entry.bases]
    if [full_name(base or "", aliases) for base in bases] != ["torch.nn.Module"]:
        yield (
            entry.lineno,
            f"{entry.name} must derive from torch.nn.Module alone, got ({', '.join(map(str, bases))})",
        )
    if not any(isinstance(s, ast.FunctionDef) and s.name == "forward" for s in entry.body):
        yield entry.lineno, f"{entry.name} defines no forward"


# ------------------------------------------------------------------------------------------------------------- dry run


def check_capture(capture: Capture, allowed_ops: Collection[str] = (), hardware: Hardware | None = None) -> GateResult:
    """Judges a dry run: it launches, fits on the device, reads what was written, and leaves the work to kernels.

    `allowed_ops` are the operations of libraries that the compiled baseline calls; without `hardware`, the limits are
    those of the target that the capture names.
    """
    refusals = [
        *_launch_refusals(capture, hardware or _hardware_of(capture)),
        *_operation_refusals(capture, policy.spellings_of(frozenset(allowed_ops))),
    ]
    evidence = {"n_launches": len(capture.launches), "torch_ops": [op.name for op in capture.torch_ops]}
    return GateResult(gate=Gate.STATIC, passed=not refusals, reason="; ".join(refusals), evidence=evidence)


def _hardware_of(capture: Capture) -> Hardware | None:
    try:
        return load_hardware(capture.target)
    except ConfigError:
        return None


def _launch_refusals(capture: Capture, hardware: Hardware | None) -> Iterator[str]:
    if not any(math.prod(launch.grid) for launch in capture.launches):
        yield "forward launches no kernel" if not capture.launches else "every grid is empty: forward runs no kernel"
    for launch in capture.launches:
        if launch.num_warps > MAX_WARPS:
            yield f"kernel {launch.kernel} asks for {launch.num_warps} warps, a block has at most {MAX_WARPS}"
        if any(size > most for size, most in zip(launch.grid, MAX_GRID, strict=True)):
            yield f"kernel {launch.kernel} has grid {launch.grid}, at most {MAX_GRID} is possible"
        if hardware and launch.shared_bytes > hardware.shared_bytes_per_block:
            yield (
                f"kernel {launch.kernel} needs {launch.shared_bytes} bytes of shared memory, a block of "
                f"{hardware.name} has {hardware.shared_bytes_per_block}; smaller tiles or fewer stages"
            )
    yield from dict.fromkeys(_unwritten_refusal(launch) for launch in capture.launches if launch.unwritten_reads)


def _unwritten_refusal(launch: Launch) -> str:
    return (
        f"kernel {launch.kernel} reads memory that nobody has written in this call ({', '.join(launch.unwritten_reads)}"
        "): it may hold an answer of an earlier call; write it first, or begin with zeros"
    )


def check_run(operations: Collection[str], allowed_ops: Collection[str] = ()) -> GateResult:
    """Judges the operations of torch that host code called in a real run: the dry run must have seen what computes.

    A program that behaves otherwise on fake tensors hides something. What host code reads is not held against it here:
    small tensors made of numbers look like any other.
    """
    allowed = policy.spellings_of(frozenset(allowed_ops)) | policy.HOST_READS
    refusals = list(_refused_operations(operations, allowed))
    reason = "; ".join(f"{refusal} (in the dry run it did not)" for refusal in refusals)
    return GateResult(gate=Gate.INTEGRITY, passed=not refusals, reason=reason)


def computing_operations(operations: Collection[str]) -> list[str]:
    """Those of the operations that host code called which compute: a library's, where the baseline calls it too."""
    harmless = policy.MEMORY_OPERATIONS | policy.HOST_READS
    return [operation for operation in operations if policy.operation_name(operation) not in harmless]


def _operation_refusals(capture: Capture, allowed: frozenset[str]) -> Iterator[str]:
    yield from _refused_operations([op.name for op in capture.torch_ops], allowed)


def _refused_operations(operations: Collection[str], allowed: frozenset[str]) -> Iterator[str]:
    for operation in dict.fromkeys(operations):
        name = policy.operation_name(operation)
        if name in policy.MEMORY_OPERATIONS or name in allowed:
            continue
        if name in policy.HOST_READS:
            yield f"host code reads a value from the device ({operation}), so launches wait for it"
        else:
            yield f"host code calls {operation}, which computes in torch; do it in a kernel"

"""Integrity: does a program launch in a real run what it launched in the dry run?

The static gate, the fingerprint and the model rest on the dry run; only a real run shows values. They are about the
same program only where both launch the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from db.records import Capture, Gate, GateResult, Launch

_QUESTIONS = (
    ("kernel", "kernel"),
    ("grid", "grid"),
    ("constexprs", "compile-time arguments"),
    ("arguments", "arguments"),
)


def check_launches(capture: Capture, seen: Sequence[Mapping[str, Any]]) -> GateResult:
    """Refuses a program that launches one thing in the dry run and another when it runs.

    Args:
        capture: of the workload that was run.
        seen: what one run launched, construction included, in order; each as `Launched._asdict()`.
    """
    reason = _difference(capture.launches, seen)
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


def _difference(captured: Sequence[Launch], seen: Sequence[Mapping[str, Any]]) -> str:
    for i, (launch, real) in enumerate(zip(captured, seen, strict=False)):
        for name, words in _QUESTIONS:
            before, now = _text(getattr(launch, name)), _text(real.get(name))
            if before != now:
                return f"launch {i} ({launch.kernel}) has {words} {now} when it runs and {before} in the dry run{_WHY}"
    if len(captured) != len(seen):
        return f"it launches {len(seen)} kernels when it runs and {len(captured)} in the dry run{_WHY}"
    return ""


_WHY = ": a program does the same whoever runs it"


def _text(value: Any) -> str:
    """Equal for equal values, NaN and what JSON made of a tuple included."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={value[name]!r}" for name in sorted(value)) or "none"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(str, value))})"
    return str(value)

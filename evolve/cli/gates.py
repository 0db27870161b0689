"""The gates' answers as a table."""

from __future__ import annotations

from db.records import GateResult, Verdict
from evolve.cli.console import Column, console, print_table

_COLUMNS = [Column("gate", "gate"), Column("answer", "answer"), Column("reason", "reason")]


def print_gates(verdict: Verdict) -> None:
    """One line a gate, in the order in which they ran, and what judging cost."""
    print_table([gate_row(result) for result in verdict.gates], _COLUMNS, title="gates")
    if verdict.seconds:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in verdict.seconds.items())
        console().print(f"seconds: {phases}", style="dim")


def gate_row(result: GateResult) -> dict[str, object]:
    """A gate's answer as a row; also what `--json` prints."""
    return {
        "gate": str(result.gate),
        "answer": "passed" if result.passed else "refused",
        "seconds": result.seconds,
        "reason": result.reason,
        "evidence": result.evidence,
    }

"""Verdicts in words: one phrase that several commands print."""

from __future__ import annotations

from db.records import Latency, Verdict
from evolve.cli.console import format_times, format_us


def claim(verdict: Verdict) -> str:
    """What a verdict says: "1.54x over compile, 508.3 us measured (506.2 to 510.4) on nvidia-h200"."""
    latency = verdict.latency
    if latency is None:
        gate = next((str(g.gate) for g in verdict.gates if not g.passed), "")
        refused = f", refused by {gate}: {verdict.reason}" if gate else ""
        return f"{verdict.outcome}{refused}"
    return (
        f"{format_times(latency.speedup)} over {latency.baseline_name}, "
        f"{format_us(latency.device_us)} us {latency.kind}{_interval(latency)} on {verdict.hardware_id}"
    )


def _interval(latency: Latency) -> str:
    if latency.low_us == latency.high_us:
        return ""
    return f" ({format_us(latency.low_us)} to {format_us(latency.high_us)})"

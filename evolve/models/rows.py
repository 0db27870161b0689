"""One module's row of the table: what became of it, and what the table groups it by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from db.records import PrecisionClass, Record
from evaluators.decomposition.classify import ModelOutcome, RootCause
from evolve.models.dominant import Operation
from evolve.models.records import Conditions

Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1.001, allow_inf_nan=False)]  # shares of a sum round up
_LEVEL = re.compile(r"level[ _-]?(\d+)$", re.IGNORECASE)


class BenchRow(Record):
    """What became of one module. Without an outcome, `error` says why there is none."""

    module: str
    level: int | None = None  # of KernelBench, by the name of its folder
    outcome: ModelOutcome | None = None
    cause: RootCause | None = None
    speedup: Ratio | None = None  # of what is delivered over the fastest baseline: the baseline itself is 1
    program_speedup: Ratio | None = None  # of the fastest correct program, delivered or not; below 1 it is slower
    baseline: str = ""  # the fastest way of running the module
    against: dict[str, Ratio] = Field(default_factory=dict)  # speed-up of what is delivered over each way
    precision: PrecisionClass = PrecisionClass.REFERENCE
    dominant: Operation | None = None
    dominant_share: Share = 0.0  # of device time
    degenerate: str | None = None  # why a speed-up says little, or ""; None where that is not known
    left_out: tuple[str, ...] = ()  # needless work that the module asks for and what is delivered does not do
    roofline_efficiency: Share | None = None  # of what is delivered, in [0, 1]
    n_parts: int = 0
    n_used: int = 0
    seconds: float = 0.0
    hardware: str = ""  # as torch reports it
    versions: dict[str, str] = Field(default_factory=dict)
    conditions: Conditions | None = None
    reason: str = ""
    error: str = ""
    best_path: str = ""
    folder: str = ""  # the name of the one with its results, in that of the table
    is_known: bool = False  # from an earlier sitting
    is_interrupted: bool = False  # it is run again the next time

    @property
    def is_valid(self) -> bool:
        """Whether a program of the module was correct, faster or not."""
        return self.program_speedup is not None


def row_of(module: Path, summary: dict[str, Any]) -> BenchRow:
    """The row of a summary as `summary.json` holds it. What earlier versions did not write stays unknown."""
    is_optimized = summary["outcome"] == ModelOutcome.OPTIMIZED
    speedup = summary["speedup"] if is_optimized else 1.0
    dominant = _dict(summary.get("dominant"))
    return BenchRow(
        module=module.stem,
        level=level_of(module),
        outcome=summary["outcome"],
        cause=summary["root_cause"],
        speedup=speedup,
        program_speedup=_program_speedup(summary, speedup if is_optimized else None),
        baseline=summary.get("baseline", ""),
        against=against_of(summary, speedup),
        precision=summary.get("precision", PrecisionClass.REFERENCE),
        dominant=dominant.get("operation"),
        dominant_share=dominant.get("share", 0.0),
        degenerate=summary.get("degenerate"),
        left_out=tuple(summary.get("left_out", ())) if is_optimized else (),
        roofline_efficiency=_efficiency(summary) if is_optimized else None,
        n_parts=len(summary["parts"]),
        n_used=sum(part["is_used"] for part in summary["parts"]),
        seconds=summary["seconds"]["all"],
        hardware=summary.get("hardware", ""),
        versions=_dict(summary.get("versions")),
        conditions=_dict(summary.get("conditions")) or None,
        reason=summary["reason"],
        best_path=summary["best_path"],
        is_interrupted=summary.get("is_interrupted", False),
    )


def level_of(module: Path) -> int | None:
    """The level that a folder of the path names (`KernelBench/level2/12_mlp.py`), the innermost first."""
    found = [match for folder in reversed(module.absolute().parts[:-1]) if (match := _LEVEL.search(folder))]
    return int(found[0][1]) if found else None


def _program_speedup(summary: dict[str, Any], delivered: float | None) -> float | None:
    """A file without a winner is what the compiler wrote: no program of ours, unless it leaves work out."""
    is_lean = bool(summary.get("left_out"))
    files = [attempt for attempt in summary["attempts"] if (attempt["parts"] or is_lean) and attempt["is_correct"]]
    found = [*(file["speedup"] for file in files), _dict(summary.get("whole")).get("speedup"), delivered]
    return max((speedup for speedup in found if speedup is not None), default=None)


def against_of(summary: Mapping[str, Any], speedup: float) -> dict[str, float]:
    """Over every way of running the module that was timed by the method of the fastest.

    What is delivered was timed side by side with the fastest way alone; the others follow from its time and theirs.
    """
    ways = _dict(summary.get("baselines"))
    best = _dict(ways.get(summary.get("baseline", "")))
    if not best.get("device_us"):
        return {}
    alike = {name: way for name, way in ways.items() if way["device_us"] and way["method"] == best["method"]}
    return {name: speedup * way["device_us"] / best["device_us"] for name, way in alike.items()}


def _dict(value: object) -> dict[str, Any]:
    """A value of a summary that should be one; an empty one where somebody changed it."""
    return value if isinstance(value, dict) else {}


def _efficiency(summary: dict[str, Any]) -> float | None:
    """Of the last file that was judged, where that is delivered and no program of the module itself is faster."""
    last = summary["attempts"][-1] if summary["attempts"] else {"replaces_baseline": False}
    is_delivered = last["replaces_baseline"] and last["speedup"] == summary["speedup"]
    return last.get("roofline_efficiency") if is_delivered else None

"""What an evaluator says of itself before it judges. Light: importing this imports neither torch nor triton."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from db.records import Hardware, LatencyKind, PrecisionClass, Record


class BaselineTime(Record):
    """What one way of running the reference takes, in microseconds; `error` says why there is no time."""

    name: Literal["eager", "compile", "max-autotune", "seed"]
    method: Literal["graph", "events", "model"] = "graph"
    device_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    call_us: float | None = None
    error: str = ""


class BaselineReport(Record):
    """What candidates have to beat: the fastest of the ways that were timed under the flags of `precision`."""

    name: str
    kind: LatencyKind
    method: Literal["graph", "events", "model"]
    device_us: float
    call_us: float | None = None
    precision: PrecisionClass = PrecisionClass.REFERENCE
    times: tuple[BaselineTime, ...] = ()
    extern_ops: tuple[str, ...] = ()  # operations of libraries that the compiled baseline calls: candidates may as well
    versions: dict[str, str] = Field(default_factory=dict)
    from_cache: bool = False


class EvaluatorReport(Record):
    """Where candidates are judged, with which software, against what, and how they are kept apart."""

    hardware: Hardware
    baseline: BaselineReport
    versions: dict[str, str]
    isolation: str
    missing: tuple[str, ...] = ()  # names of the sandbox's layers that its machine refuses
    forwards: tuple[dict[str, Any], ...] = ()  # as `forwards_of` has them: whoever prepares needs no torch then

    @property
    def confinement(self) -> str:
        """The isolation in words: "namespaces", or "subreaper, without own processes, own mounts"."""
        return f"{self.isolation}, without {', '.join(self.missing)}" if self.missing else self.isolation

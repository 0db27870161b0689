"""What an island tells about itself: a record that progress, reports and the run loop read."""

from __future__ import annotations

from pydantic import Field

from db.measures import Tier
from db.records import Record
from islands.knowledge.summary import KnowledgeSummary


class CellSummary(Record):
    """One occupied cell: who holds it and how fast."""

    tier: Tier
    latency_bin: int
    latency_us: float
    speedup: float
    program_id: str


class TechniqueCount(Record):
    """How often a technique was tried on an island, passed every gate, and improved its parent."""

    tried: int = 0
    passed: int = 0
    improved: int = 0


class IslandSummary(Record):
    """An island at one moment."""

    island: int
    n_asked: int = 0
    n_told: int = 0
    n_in_flight: int = 0
    best_latency_us: float | None = None
    best_speedup: float | None = None
    coverage: float = 0.0  # occupied cells over all cells
    qd_score: float = 0.0
    n_idle: int = 0  # verdicts since best latency or roofline efficiency last improved
    is_stagnant: bool = False
    is_finished: bool = False  # its strategy has run its course
    cells: tuple[CellSummary, ...] = ()
    knowledge: KnowledgeSummary | None = None  # None where the search has no knowledge base
    techniques: dict[str, TechniqueCount] = Field(default_factory=dict)

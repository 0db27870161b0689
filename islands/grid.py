"""The elite grid: the fastest program of every cell, for one kind of latency on one hardware."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from db.measures import Cell, MeasureSpace
from db.records import Candidate, Evaluation, Latency, LatencyKind, PrecisionClass, Verdict
from islands.operators.base import Parent

QD_OFFSET_OCTAVES = 4.0
"""What a cell scores when its elite is as fast as the baseline. At a sixteenth of that speed, and below, it is 0."""


class AddStatus(IntEnum):
    """What became of a program that was offered to a grid. Ordered: more is better."""

    REJECTED = 0
    IMPROVED = 1  # took a cell from a slower elite
    NEW = 2  # took an empty cell


class GridKey(NamedTuple):
    """What two latencies must share to be comparable. A grid holds programs of one key."""

    problem_id: str
    hardware_id: str
    latency_kind: LatencyKind
    precision: PrecisionClass

    @classmethod
    def of(cls, verdict: Verdict) -> GridKey:
        """The key that a correct verdict belongs to.

        Raises:
            ValueError: the verdict has no latency, so it belongs to no grid.
        """
        latency = _latency_of(verdict)
        return cls(verdict.problem_id, verdict.hardware_id, latency.kind, verdict.precision)


class Occupant(NamedTuple):
    """A correct program with its verdict: what a cell holds, and what a parent is made of."""

    candidate: Candidate
    verdict: Verdict

    @property
    def program_id(self) -> str:
        return self.verdict.program_id

    @property
    def latency_us(self) -> float:
        """Device latency in microseconds: the objective, lower is better."""
        return _latency_of(self.verdict).device_us

    @property
    def speedup(self) -> float:
        return _latency_of(self.verdict).speedup

    @property
    def rank(self) -> tuple[float, int, str]:
        """Sorts by latency, then by length of the source, then by id, so that every order is total."""
        return self.latency_us, len(self.candidate.source), self.program_id

    def as_parent(self) -> Parent:
        return Parent(self.candidate.source, self.program_id, self.verdict)

    def as_evaluation(self) -> Evaluation:
        return Evaluation(candidate=self.candidate, verdict=self.verdict)


class EliteGrid:
    """Cells of the measure space with the elite of each. A program holds at most one cell."""

    def __init__(self, key: GridKey, space: MeasureSpace | None = None) -> None:
        self.key = key
        self.space = space or MeasureSpace()
        self._cells: dict[Cell, Occupant] = {}
        self._program_ids: set[str] = set()
        self._ranked: list[Occupant] | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def __contains__(self, program_id: object) -> bool:
        return program_id in self._program_ids

    def accepts(self, verdict: Verdict) -> bool:
        """Whether a verdict may be offered at all: it is correct and its latency is comparable with this grid's."""
        return verdict.is_correct and GridKey.of(verdict) == self.key

    def add(self, occupant: Occupant) -> AddStatus:
        """Offers a program to its cell. Faster wins; of two equally fast the one with the shorter source.

        Raises:
            ValueError: the program is of another key, failed a gate, or has a latency that is NaN, infinite or not
                positive.
        """
        cell = self._cell_of(occupant)
        holder = self._cells.get(cell)
        if occupant.program_id in self or (holder is not None and holder.rank[:2] <= occupant.rank[:2]):
            return AddStatus.REJECTED
        if holder is not None:
            self._program_ids.remove(holder.program_id)
        self._cells[cell] = occupant
        self._program_ids.add(occupant.program_id)
        self._ranked = None
        return AddStatus.NEW if holder is None else AddStatus.IMPROVED

    def revise(self, verdict: Verdict) -> bool:
        """Moves a program to the cell that a later verdict of it says; whether it still holds one.

        Whoever it meets there is treated as by `add`. The cell that it leaves is empty.
        """
        cell = next((cell for cell, holder in self._cells.items() if holder.program_id == verdict.program_id), None)
        if cell is None:
            return False
        holder = self._cells.pop(cell)
        self._program_ids.remove(holder.program_id)
        self._ranked = None
        # the program may have been judged for another candidate, of another island as a rule
        own = verdict.model_copy(update={"candidate_id": holder.candidate.candidate_id})
        return self.add(holder._replace(verdict=own)) > AddStatus.REJECTED

    def cells(self) -> dict[Cell, Occupant]:
        """Every occupied cell with its elite, fastest first."""
        return dict(sorted(self._cells.items(), key=lambda item: item[1].rank))

    def elites(self) -> list[Occupant]:
        """The elites, fastest first."""
        if self._ranked is None:
            self._ranked = sorted(self._cells.values(), key=lambda occupant: occupant.rank)
        return list(self._ranked)

    @property
    def best(self) -> Occupant | None:
        """The fastest program, or None when nothing correct has been added."""
        return next(iter(self.elites()), None)

    @property
    def coverage(self) -> float:
        """Occupied cells over all cells, in [0, 1]."""
        return len(self) / self.space.n_cells

    @property
    def qd_score(self) -> float:
        """Sum over occupied cells of max(0, log2(baseline / device latency) + 4): adding an elite never lowers it."""
        return sum(max(0.0, math.log2(elite.speedup) + QD_OFFSET_OCTAVES) for elite in self._cells.values())

    def _cell_of(self, occupant: Occupant) -> Cell:
        verdict = occupant.verdict
        key = GridKey.of(verdict)
        if key != self.key:
            raise ValueError(f"a grid of {_shown(self.key)} cannot hold a program of {_shown(key)}")
        if verdict.tier is None:
            raise ValueError(f"a program without a tier belongs to no cell: {verdict.candidate_id}")
        cell = self.space.cell_of(verdict.tier, occupant.latency_us)
        if not (math.isfinite(occupant.speedup) and occupant.speedup > 0):
            raise ValueError(f"the speed-up must be finite and positive, got {occupant.speedup!r}")
        return cell


def _latency_of(verdict: Verdict) -> Latency:
    if verdict.latency is None:
        raise ValueError(f"a {verdict.outcome} verdict has no latency: {verdict.candidate_id}")
    return verdict.latency


def _shown(key: GridKey) -> str:
    return f"{key.latency_kind} latency, {key.precision} precision, on {key.hardware_id}, problem {key.problem_id}"

"""What knowledge is about: programs as they stand, situations, attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from db.knowledge import TechniqueEvidence
from db.moves import direction_of, move_of
from db.profile import Profile
from db.recipes import Recipe
from db.records import Gate, LatencyKind, Verdict


class PriorKnowledge(NamedTuple):
    """What earlier runs learnt, as it was known at a moment, in seconds since the epoch."""

    evidence: Sequence[TechniqueEvidence] = ()
    at_s: float = 0.0
    recipes: Sequence[Recipe] = ()  # what made other problems' programs fast


class Situation(NamedTuple):
    """A program that is about to be edited."""

    state: str = ""  # key of its performance state; empty where nobody knows it
    previous: str = ""  # the technique that made it
    hardware_id: str = ""
    latency_kind: LatencyKind | None = None
    headroom_octaves: float | None = None  # how far it is from the roofline; None where nobody knows

    @classmethod
    def of(cls, verdict: Verdict, technique: str = "") -> Situation:
        """That of a judged program, which `technique` made."""
        state = verdict.bottleneck.state.key if verdict.bottleneck else ""
        kind = verdict.latency.kind if verdict.latency else None
        headroom = _headroom_of(verdict.profile) if verdict.profile else None
        return cls(state, technique, verdict.hardware_id, kind, headroom)


class Standing(NamedTuple):
    """What is remembered of a judged program: how fast it is, and the little of its profile that explains it."""

    technique: str = ""  # that made it
    state: str = ""  # key of its performance state
    latency_us: float | None = None
    latency_kind: LatencyKind | None = None
    hardware_id: str = ""
    gate: str = ""  # that refused it
    is_repeat: bool = False  # the same work as a program judged before
    limit: str = ""  # its primary bottleneck
    spill_bytes: int | None = None
    occupancy: float | None = None
    dram_bytes: float | None = None
    headroom_octaves: float | None = None  # to the speed of light of the busiest unit
    source: str = ""  # of the profile that all this is read off

    @classmethod
    def of(cls, verdict: Verdict, technique: str = "") -> Standing:
        profile, report, latency = verdict.profile, verdict.bottleneck, verdict.latency
        read, written = (profile.dram_read_bytes, profile.dram_write_bytes) if profile else (None, None)
        return cls(
            technique=technique,
            state=report.state.key if report else "",
            latency_us=latency.device_us if latency else None,
            latency_kind=latency.kind if latency else None,
            hardware_id=verdict.hardware_id,
            gate=next((g.gate.value for g in verdict.gates if not g.passed and g.gate is not Gate.SPEED), ""),
            is_repeat=bool(verdict.duplicate_of),
            limit=report.state.primary.value if report else "",
            spill_bytes=profile.spill_bytes if profile else None,
            occupancy=profile.occupancy if profile else None,
            dram_bytes=None if read is None or written is None else read + written,
            headroom_octaves=_headroom_of(profile) if profile else None,
            source=profile.source if profile else "",
        )

    @property
    def situation(self) -> Situation:
        """That of somebody who is about to edit it."""
        return Situation(self.state, self.technique, self.hardware_id, self.latency_kind, self.headroom_octaves)


class Attempt(NamedTuple):
    """One technique, tried in one situation. `octaves` is None for a program that failed."""

    technique: str
    situation: Situation
    octaves: float | None
    detail: str = ""  # what was changed, as the operator said it
    predicted_octaves: float | None = None
    cause: str = ""  # why the gain is not what was predicted

    @property
    def move(self) -> str:
        return move_of(self.technique, self.detail)

    @property
    def direction(self) -> str:
        return direction_of(self.technique, self.detail)


def _headroom_of(profile: Profile) -> float | None:
    """Octaves between a program and the roofline; None for a profile that says nothing of it."""
    efficiency = min(profile.roofline_efficiency, 1.0)
    return -math.log2(efficiency) if efficiency > 0 else None


@lru_cache(maxsize=4096)
def levels_of(state: str) -> tuple[str, ...]:
    """The groups that a state belongs to, from everything to itself: "", "primary", "primary/kind", the whole key."""
    parts = state.split("/")
    if len(parts) < 5:
        return ("",)
    return "", parts[0], f"{parts[0]}/{parts[3]}", state


@lru_cache(maxsize=4096)
def kernel_kind_of(state: str) -> str:
    """What kind of kernel a state is about; empty where nobody knows."""
    parts = state.split("/")
    return parts[3] if len(parts) >= 5 else ""

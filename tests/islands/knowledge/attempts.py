"""Attempts and evidence to order, for tests of the knowledge base. What a test cares about is named at the call."""

from __future__ import annotations

import math
from typing import Any

from support.landscape import Turn

from db.knowledge import TechniqueEvidence
from db.records import LatencyKind
from islands.knowledge import Attempt, KnowledgeBase, PriorKnowledge, Situation
from islands.settings import IslandSettings

GPU = "nvidia-h200"
NOW_S = 1_800_000_000.0
ROW = "dram_bandwidth/memory_latency/registers/row/sm_90"
OTHER_ROW = "dram_bandwidth/-/-/row/sm_90"
SCAN = "dram_bandwidth/memory_latency/registers/scan/sm_90"
MATMUL = "tensor_cores/-/shared/matmul/sm_90"
WON, LOST = math.log2(1.5), -0.5


def situation(state: str = ROW, previous: str = "", hardware_id: str = GPU) -> Situation:
    return Situation(state, previous, hardware_id, LatencyKind.MEASURED)


def attempt(
    technique: str = "turn_warps",
    octaves: float | None = WON,
    *,
    state: str = ROW,
    detail: str = "",
    previous: str = "",
    predicted: float | None = None,
    cause: str = "",
) -> Attempt:
    return Attempt(technique, situation(state, previous), octaves, detail, predicted, cause)


def evidence(technique: str = "turn_warps", n_tried: int = 10, n_improved: int = 5, **more: Any) -> TechniqueEvidence:
    """Improvements are worth half an octave each; whatever did not improve kept its speed."""
    fields: dict[str, Any] = {
        "state": ROW,
        "latency_kind": LatencyKind.MEASURED,
        "hardware_id": GPU,
        "n_passed": n_tried,
        "n_kept": n_tried,
        "gained_octaves": 0.5 * n_improved,
        "last_at_s": NOW_S,
    }
    return TechniqueEvidence(technique=technique, n_tried=n_tried, n_improved=n_improved, **{**fields, **more})


def prior(*known: TechniqueEvidence) -> PriorKnowledge:
    return PriorKnowledge(known, NOW_S)


KNOBS = ("WARPS", "BLOCK", "STAGES", "ROWS", "CACHE", "UNROLL")
TECHNIQUES = tuple(f"turn_{knob.lower()}" for knob in KNOBS)


def base(*known: TechniqueEvidence, **settings: Any) -> KnowledgeBase:
    """Six techniques with equal priors and costs."""
    operators = {turn.name: turn for turn in (Turn(knob, [1, 2]) for knob in KNOBS)}
    return KnowledgeBase(operators, IslandSettings.model_validate(settings), prior(*known))

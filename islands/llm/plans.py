"""Plans: what a planner proposes against a diagnosed bottleneck, one change each."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from islands.llm.jsons import number_of, read_json, text_of
from islands.llm.refusals import Refusal, RefusalKind

LEAST_EFFECT_PCT, MOST_EFFECT_PCT = -50.0, 95.0
"""What an effect may be, in percent of latency: beyond, it is a wish."""

SHAPE = (
    '[{"technique": "loop_pipeline", "construct": "the loop over tiles of softmax_kernel", '
    '"change": "tl.range with num_stages=3", "why": "87% of the waiting is for loads", "effect_pct": 12}]'
)


class Plan(NamedTuple):
    """One construct of the program, one change to it, why, and by how many percent latency should fall."""

    technique: str  # a name of the catalogue, or a new one; empty where the planner named none
    construct: str
    change: str
    why: str
    effect_pct: float

    @property
    def diagnosis(self) -> str:
        """What is wrong, and where."""
        return f"{self.construct}: {self.why}"

    @property
    def octaves(self) -> float:
        """The expected gain: log2 of parent over child latency."""
        return effect_in_octaves(self.effect_pct)


def effect_in_octaves(effect_pct: float) -> float:
    return -math.log2(1 - min(max(effect_pct, LEAST_EFFECT_PCT), MOST_EFFECT_PCT) / 100)


def read_plans(text: str, n: int, finish_reason: str = "") -> list[Plan] | Refusal:
    """At most `n` plans, no two of them for the same change, in the order of the answer.

    Fewer than `n` are better than another call; none are a refusal.
    """
    value = read_json(text, list, finish_reason)
    if isinstance(value, Refusal):
        return value
    plans: dict[str, Plan] = {}
    for item in value:
        plan = _plan(item)
        if plan is not None:
            plans.setdefault(_key(plan), plan)
    if not plans:
        return Refusal(RefusalKind.NOT_AS_ASKED, f"No plan has a construct, a change and a reason. Answer like {SHAPE}")
    return list(plans.values())[:n]


def name_of(value: Any) -> str:
    """The name of a technique as the catalogue writes names: "Loop Pipelining" is "loop_pipelining"."""
    name = re.sub(r"[^a-z0-9]+", "_", text_of(value, 40).lower()).strip("_")
    return name if name[:1].isalpha() else ""


def _plan(item: Any) -> Plan | None:
    if not isinstance(item, dict):
        return None
    construct, change, why = (text_of(item.get(name)) for name in ("construct", "change", "why"))
    effect = number_of(item.get("effect_pct"))
    if not (construct and change and why) or effect is None:
        return None
    bounded = min(max(effect, LEAST_EFFECT_PCT), MOST_EFFECT_PCT)
    return Plan(name_of(item.get("technique")), construct, change, why, bounded)


def _key(plan: Plan) -> str:
    return re.sub(r"\W+", "", f"{plan.construct}:{plan.change}".lower())

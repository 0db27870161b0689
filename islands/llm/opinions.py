"""Opinions: what a judge model says that a candidate leaves out or fakes. Advice; no gate asks for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from islands.llm.jsons import number_of, read_json, text_of
from islands.llm.refusals import Refusal, RefusalKind

SHAPE = '{"concerns": [{"kind": "left_out", "line": 12, "what": "..."}], "advice": "..."}'
MOST_CONCERNS = 8
LAST_LINE = 1_000_000  # what is beyond it is no line of a program


class ConcernKind(StrEnum):
    LEFT_OUT = "left_out"  # a part of the reference is not computed
    FAKED = "faked"  # a result that is not computed from the inputs
    FRAGILE = "fragile"  # right for these inputs or shapes alone


class Concern(NamedTuple):
    """`line` of the candidate, 0 where none is named."""

    kind: ConcernKind
    line: int
    what: str


class Opinion(NamedTuple):
    """No concerns: the judge found nothing."""

    concerns: tuple[Concern, ...]
    advice: str


def read_opinion(text: str, finish_reason: str = "") -> Opinion | Refusal:
    value = read_json(text, dict, finish_reason)
    if isinstance(value, Refusal):
        return value
    listed = value.get("concerns")
    if not isinstance(listed, list):
        return Refusal(RefusalKind.NOT_AS_ASKED, f"The answer has no list of concerns. Answer like {SHAPE}")
    concerns = [one for item in listed if (one := _concern(item))]
    if listed and not concerns:
        return Refusal(RefusalKind.NOT_AS_ASKED, f"No concern has a kind and words. Answer like {SHAPE}")
    return Opinion(tuple(concerns[:MOST_CONCERNS]), text_of(value.get("advice")))


def _concern(item: Any) -> Concern | None:
    if not isinstance(item, dict):
        return None
    kind, what, line = text_of(item.get("kind")), text_of(item.get("what")), number_of(item.get("line"))
    if kind not in set(ConcernKind) or not what:
        return None
    return Concern(ConcernKind(kind), int(line) if line and 0 < line <= LAST_LINE else 0, what)

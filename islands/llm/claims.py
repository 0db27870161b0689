"""What a model says about its own edit: the lines TECHNIQUE, CHANGE and EXPECT beside the code."""

from __future__ import annotations

import re
from typing import NamedTuple

from islands.llm.answers import plain_lines
from islands.llm.jsons import number_of, text_of
from islands.llm.plans import effect_in_octaves, name_of

_LINE = re.compile(r"^[\s*_>#-]*(?P<what>TECHNIQUE|CHANGE|EXPECT)[\s*_]*:[\s*_]*(?P<text>.+?)[\s*_]*$")
LONGEST, LONGEST_LINE = 200, 400


class Claim(NamedTuple):
    """Empty, or None, where a model did not say."""

    technique: str = ""
    change: str = ""
    effect_pct: float | None = None  # by how many percent latency should fall

    @property
    def octaves(self) -> float | None:
        return None if self.effect_pct is None else effect_in_octaves(self.effect_pct)


def read_claim(answer: str) -> Claim:
    """The first line of each kind. Never refused: an edit without a claim is still an edit."""
    said: dict[str, str] = {}
    for line in plain_lines(answer):
        found = _LINE.match(line[:LONGEST_LINE])
        if found:
            said.setdefault(found["what"], found["text"])
    return Claim(
        name_of(said.get("TECHNIQUE", "")), text_of(said.get("CHANGE", ""), LONGEST), number_of(said.get("EXPECT"))
    )

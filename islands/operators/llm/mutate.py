"""Mutate: one elite, everything that is known of it, one change."""

from __future__ import annotations

import random

from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.selection import SpeedWeightedSelector


class Mutate(Author):
    """Asks for a faster version of one of the fastest elites."""

    name = "mutate"
    n_parents = 1

    def applies(self, stage: Stage) -> bool:
        return bool(stage.elites)

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        parent = SpeedWeightedSelector().select(stage.elites, rng)
        prompt = render(self.name, stage.about(parent), stage.settings.prompt_tokens)
        return Opening(prompt.messages, (parent,), parent.candidate.source)

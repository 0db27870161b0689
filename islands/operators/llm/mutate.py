"""Mutate: one elite, everything that is known of it, one change."""

from __future__ import annotations

import random

from islands.llm.exchange import Completion
from islands.llm.models import Role
from islands.operators.llm.base import Opening, Reading, read_source
from islands.operators.llm.dialogue import DialogueState
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.selection import SpeedWeightedSelector


class Mutate:
    """Asks for a faster version of one of the fastest elites."""

    name = "mutate"
    role = Role.EXECUTOR
    n_parents = 1

    def applies(self, stage: Stage) -> bool:
        return bool(stage.elites)

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        parent = SpeedWeightedSelector().select(stage.elites, rng)
        prompt = render(self.name, stage.about(parent), stage.settings.prompt_tokens)
        return Opening(prompt.messages, (parent,), parent.candidate.source)

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        return read_source(completion, dialogue, stage)

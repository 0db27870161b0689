"""Synthesize: from the reference to a first kernel, where there is nothing to start from."""

from __future__ import annotations

import random

from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import render


class Synthesize(Author):
    """Only while nothing correct is known of a problem that came without a seed. The answer is a whole program."""

    name = "synthesize"
    n_parents = 0

    def applies(self, stage: Stage) -> bool:
        return not stage.elites and not stage.brief.problem.seeds

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:  # noqa: ARG002
        facts = stage.facts._replace(memory=stage.memory())
        return Opening(render(self.name, facts, stage.settings.prompt_tokens).messages)

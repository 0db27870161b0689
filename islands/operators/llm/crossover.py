"""Crossover: two elites of different cells, what each is better at, one child of both."""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.grid import Occupant
from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.prompts.comparison import strengths_of
from islands.selection import SpeedWeightedSelector


class Crossover(Author):
    """The first parent, which an edit is of, is among the fastest; the second is better at something, where any is."""

    name = "crossover"
    n_parents = 2

    def applies(self, stage: Stage) -> bool:
        return len(stage.elites) >= self.n_parents

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        first = SpeedWeightedSelector().select(stage.elites, rng)
        second = _mate(first, stage.elites, rng)
        about = stage.about(first)._replace(
            parents=(
                stage.program(first, strengths_of(first.verdict, second.verdict)),
                stage.program(second, strengths_of(second.verdict, first.verdict)),
            ),
            inspirations=(),
        )
        prompt = render(self.name, about, stage.settings.prompt_tokens)
        return Opening(prompt.messages, (first, second), first.candidate.source, known=(second.candidate.source,))


def _mate(first: Occupant, elites: Sequence[Occupant], rng: random.Random) -> Occupant:
    """An elite that has what the first one lacks."""
    others = [elite for elite in elites if elite.program_id != first.program_id]
    better = [elite for elite in others if strengths_of(elite.verdict, first.verdict)]
    return rng.choice(better or others)

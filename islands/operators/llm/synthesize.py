"""Synthesize: from the reference to a first kernel, where there is nothing to start from, or only a compiler's."""

from __future__ import annotations

import random

from db.records import Problem
from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import render


class Synthesize(Author):
    """While nothing correct is known of a problem that came without a seed; and once for a part of a model.

    What a part starts from is how a compiler split its piece of the graph: the reference alone may lead elsewhere. The
    answer is a whole program.
    """

    name = "synthesize"
    n_parents = 0

    def applies(self, stage: Stage) -> bool:
        if _is_piece_of_graph(stage.brief.problem):
            return not stage.notebook.has_begun(self.name)
        return not stage.elites and not stage.brief.problem.seeds

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:  # noqa: ARG002
        stage.notebook.begins_once(self.name)
        facts = stage.facts._replace(memory=stage.memory())
        return Opening(render(self.name, facts, stage.settings.prompt_tokens).messages)


def _is_piece_of_graph(problem: Problem) -> bool:
    """Whether it is a part of a model with a reference in ATen terms, and not a kernel that is its own."""
    model, _, part = problem.name.rpartition("/")
    return problem.kind == "kernelbench" and bool(model) and part.startswith("part_")

"""Execute: one plan, carried out on the program that it was made for."""

from __future__ import annotations

import random

from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import render


class Execute(Author):
    """Takes the plan that waits longest. The prediction is the planner's."""

    name = "execute"
    n_parents = 1
    comes_first = True

    def applies(self, stage: Stage) -> bool:
        return bool(stage.notebook.plans)

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:  # noqa: ARG002
        while stage.notebook.plans:
            waiting = stage.notebook.next_plan()
            parent = stage.ancestry.find(waiting.parent)
            if parent is not None:  # else it came from another island, before the run was interrupted
                about = stage.about(parent)._replace(plan=waiting.plan)
                prompt = render(self.name, about, stage.settings.prompt_tokens)
                return Opening(
                    prompt.messages,
                    (parent,),
                    parent.candidate.source,
                    plan=waiting.plan,
                    planned_in=waiting.planned_in,
                    technique=waiting.plan.technique,
                )
        return None

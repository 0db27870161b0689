"""Plan: several distinct changes to one elite, each with a reason and a prediction, for executors to carry out."""

from __future__ import annotations

import random

from islands.llm.exchange import Completion
from islands.llm.models import Role
from islands.llm.plans import read_plans
from islands.llm.refusals import Refusal
from islands.operators.llm.base import Opening, Reading
from islands.operators.llm.dialogue import DialogueState
from islands.operators.llm.notebook import WaitingPlan
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.selection import SpeedWeightedSelector


class PlanChanges:
    """Asks a planner. Not while plans wait: what is planned is carried out first."""

    name = "plan"
    role = Role.PLANNER
    n_parents = 1
    comes_first = False

    def applies(self, stage: Stage) -> bool:
        return bool(stage.elites) and not stage.notebook.plans

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        parent = SpeedWeightedSelector().select(stage.elites, rng)
        prompt = render(self.name, stage.about(parent), stage.settings.prompt_tokens)
        return Opening(prompt.messages, (parent,))

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        plans = read_plans(completion.text, stage.settings.n_plans, completion.finish_reason)
        if isinstance(plans, Refusal):
            return plans
        (parent,) = dialogue.parents
        stage.notebook.plan([WaitingPlan(plan=plan, parent=parent, planned_in=dialogue.dialogue_id) for plan in plans])
        return None

"""Judge: what a program leaves out or fakes, in the opinion of a model. Advice; no gate asks for it."""

from __future__ import annotations

import random

from islands.llm.exchange import Completion
from islands.llm.models import Role
from islands.llm.opinions import read_opinion
from islands.llm.refusals import Refusal
from islands.operators.llm.base import Opening, Reading
from islands.operators.llm.dialogue import DialogueState
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.prompts.facts import program_facts


class Judge:
    """Asks about the programs that the island is told to consider."""

    name = "judge"
    role = Role.REFLECTOR
    n_parents = 0
    comes_first = True

    def applies(self, stage: Stage) -> bool:
        return stage.notebook.reflections.has_to_judge

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:  # noqa: ARG002
        program = stage.notebook.reflections.next_to_judge()
        facts = stage.facts._replace(parents=(program_facts(program.candidate.source, program.verdict),))
        prompt = render(self.name, facts, stage.settings.prompt_tokens)
        return Opening(prompt.messages, about=(program.verdict.program_id,))

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        read = read_opinion(completion.text, completion.finish_reason)
        if isinstance(read, Refusal):
            return read
        (program_id,) = dialogue.about
        stage.notebook.reflections.opine(program_id, read, completion.model)
        return None

"""Reflect: what the last attempts teach. Its answer changes the memory of the island; it makes no program."""

from __future__ import annotations

import random

from islands.llm.exchange import Completion
from islands.llm.models import Role
from islands.llm.reflections import read_reflection
from islands.llm.refusals import Refusal
from islands.operators.llm.attempts import attempt_facts
from islands.operators.llm.base import Opening, Reading
from islands.operators.llm.dialogue import DialogueState
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.prompts.facts import technique_facts


class Reflect:
    """Asks about the attempts that were judged since it asked last: each is asked about once.

    One conversation at a time, because the answer names items of the memory by number.
    """

    name = "reflect"
    role = Role.REFLECTOR
    n_parents = 0
    comes_first = True

    def applies(self, stage: Stage) -> bool:
        every = stage.settings.reflect_every
        return 0 < every <= stage.notebook.reflections.n_new and self.name not in stage.under_way

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:  # noqa: ARG002
        reflections = stage.notebook.reflections
        attempts = stage.notebook.attempts[-reflections.n_new :]
        about = tuple(attempt.candidate_id for attempt in attempts)
        reflections.begin(about)
        facts = stage.facts._replace(
            attempts=tuple(attempt_facts(attempt) for attempt in attempts),
            memory=reflections.taught.lessons,
            techniques=technique_facts(reflections.known_techniques),
        )
        prompt = render(self.name, facts, stage.settings.prompt_tokens)
        return Opening(prompt.messages, about=about)

    def read(self, completion: Completion, dialogue: DialogueState, stage: Stage) -> Reading:
        reflections = stage.notebook.reflections
        read = read_reflection(
            completion.text,
            n_attempts=len(dialogue.about),
            n_items=len(reflections.taught.lessons),
            known=[entry.name for entry in reflections.known_techniques],
            finish_reason=completion.finish_reason,
        )
        if isinstance(read, Refusal):
            return read
        reflections.learn(read, dialogue.about, completion.model)
        return None

"""Repair: what a gate refused, or could not be read, goes back in the same conversation, whoever began it."""

from __future__ import annotations

from db.records import GateResult
from islands.llm.exchange import Message
from islands.llm.refusals import Refusal
from islands.operators.llm.dialogue import REPAIR, DialogueState
from islands.operators.llm.stage import Stage
from islands.prompts import render
from islands.prompts.facts import failure_facts


def repair(dialogue: DialogueState, refused: GateResult, stage: Stage) -> tuple[Message, ...]:
    """The gate's reason, and the lines that it names."""
    failure = failure_facts(refused, dialogue.base, dialogue.n_repairs_left)
    return render(REPAIR, stage.facts._replace(failure=failure), stage.settings.prompt_tokens).messages


def answer_again(refusal: Refusal, stage: Stage) -> tuple[Message, ...]:
    """Why an answer could not be used."""
    return render("refused", stage.facts._replace(refusal=refusal.reason), stage.settings.prompt_tokens).messages

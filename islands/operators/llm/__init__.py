"""Operators that ask a language model, one a file, each the way to begin a conversation and to read its answers.

A *stage* (`stage`) is what an island knows when a conversation begins: facts of the run, elites, ancestors, knowledge.
A *dialogue operator* (`base`) makes an *opening* of it, and reads what is answered: a source, a refusal that goes back,
or nothing more than a note in the island's *notebook*. Where a conversation stands is a record (`dialogue`), so that it
can be kept and taken up again. What a gate refuses goes back in the same conversation, whoever began it (`repair`).
"""

from __future__ import annotations

from islands.operators.llm.base import DialogueOperator, Opening
from islands.operators.llm.stage import Stage

__all__ = ["DialogueOperator", "Opening", "Stage", "dialogue_operators"]


def dialogue_operators() -> list[DialogueOperator]:
    """Every operator that begins a conversation."""
    from islands.operators.llm.mutate import Mutate

    return [Mutate()]

"""Operators that ask a language model, one a file, each the way to begin a conversation and to read its answers.

A *stage* (`stage`) is what an island knows when a conversation begins: facts of the run, elites, ancestors, knowledge.
A *dialogue operator* (`base`) makes an *opening* of it, and reads what is answered: a source, a refusal that goes back,
or nothing more than a note in the island's *notebook*. Where a conversation stands is a record (`dialogue`), so that it
can be kept and taken up again. What a gate refuses goes back in the same conversation, whoever began it (`repair`).
"""

from __future__ import annotations

from islands.operators.llm.base import DialogueOperator, Opening
from islands.operators.llm.dialogue import DialogueSettings
from islands.operators.llm.stage import Stage

ADVISERS = frozenset({"reflect", "judge"})
"""Operators whose answers make no program: what they find is for the archive, and for the prompts of the others."""

__all__ = ["ADVISERS", "DialogueOperator", "Opening", "Stage", "dialogue_operators"]


def dialogue_operators(settings: DialogueSettings) -> list[DialogueOperator]:
    """Every operator that begins conversations; of those that begin with an elite, what the settings name."""
    from islands.operators.llm.crossover import Crossover
    from islands.operators.llm.execute import Execute
    from islands.operators.llm.fuse import Fuse
    from islands.operators.llm.judge import Judge
    from islands.operators.llm.mutate import Mutate
    from islands.operators.llm.plan import PlanChanges
    from islands.operators.llm.reflect import Reflect
    from islands.operators.llm.synthesize import Synthesize

    about_elites: list[DialogueOperator] = [Mutate(), Crossover(), PlanChanges(), Fuse()]
    chosen = [operator for operator in about_elites if operator.name in settings.operators]
    return [Reflect(), Judge(), Execute(), *chosen, Synthesize()]

"""Operators: what to try next. An *operator* makes one proposal from its parents; a *technique* is what it applies.

`base` has the protocol. `structural` has the rewrites that need no language model.
"""

from db.records import PrecisionClass
from islands.operators.base import Operator, Parent, Proposal

__all__ = ["Operator", "Parent", "Proposal", "default_operators"]


def default_operators(precision: PrecisionClass = PrecisionClass.REFERENCE) -> list[Operator]:
    """Every structural technique and the crossover of knobs, one operator each.

    In a search for `relaxed` programs the techniques may give up precision that the reference class keeps.
    """
    from islands.operators.crossover import Crossover
    from islands.operators.structural import structural_operators

    return [*structural_operators(precision), Crossover()]

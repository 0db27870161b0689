"""Structural operators: source-to-source rewrites of Triton programs, one technique a file.

A program is analysed once (`analysis.analyse`) into *sites* with positions in its text. A technique picks a site and
answers with a splice of text, checked by parsing. A *knob* is a value with a place, under a key that related programs
share.
"""

from db.records import PrecisionClass
from islands.operators.base import Operator


def structural_operators(precision: PrecisionClass = PrecisionClass.REFERENCE) -> list[Operator]:
    """One operator per technique, what pays most often on a GPU first."""
    from islands.operators.structural.precision import Precision
    from islands.operators.structural.register import TECHNIQUES

    techniques: list[Operator] = [technique() for technique in TECHNIQUES]
    return [*techniques, Precision(relaxed=precision is PrecisionClass.RELAXED)]

"""Structural operators: source-to-source rewrites of Triton programs, one technique a file.

A program is analysed once (`analysis.analyse`) into *sites* with positions in its text. A technique picks a site and
answers with a splice of text, checked by parsing.
"""

from islands.operators.base import Operator


def structural_operators() -> list[Operator]:
    """One operator per technique."""
    return []

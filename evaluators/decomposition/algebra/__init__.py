"""Needless work that a module asks for, left out before it is compiled: no search over kernels can see it.

Every rule is an identity over real numbers. It is applied to the graph of ATen operations that `torch.export` makes of
the module, where it saves work whatever the values are; how much is lost by rounding, the judge's gates say as of any
other program. Values that are not finite may come out otherwise: zero times infinity is not computed any more.
"""

from evaluators.decomposition.algebra.simplify import NotExported, Simplified, simplified

__all__ = ["NotExported", "Simplified", "simplified"]

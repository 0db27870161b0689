"""Which parts are searched for which, and which winners go into the model together: of parts that share launches only
one can."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.decomposition.classify import GAIN
from evaluators.decomposition.records import PartProblem
from evolve.models.records import PartResult


def is_winner(part: PartResult) -> bool:
    """Whether its program is faster by more than 3% than the kernels that the model runs now."""
    return part.found.speedup is not None and part.found.speedup > GAIN


def best_apart(parts: Sequence[PartResult]) -> list[PartResult]:
    """The winners with the largest gain of which no two share a step, in the order of their steps.

    Weighted interval scheduling (Kleinberg and Tardos, Algorithm Design, 6.1).
    """
    ordered = sorted((part for part in parts if is_winner(part)), key=lambda part: part.last)
    best: list[tuple[float, list[PartResult]]] = [(0.0, [])]  # over the first n parts
    for index, part in enumerate(ordered):
        n_before = sum(other.last < part.first for other in ordered[:index])
        gain, chosen = best[n_before]
        taken = (gain + part.gain, [*chosen, part])
        best.append(max(best[-1], taken, key=lambda option: option[0]))
    return best[-1][1]


def covering(part: PartProblem, parts: Sequence[PartProblem]) -> str:
    """The name of a larger part that stands for one, or the empty string.

    The larger one is a piece of the graph, so it has a reference that can be widened to float64, and holds all launches
    of the other, which is none: a partial sum, for example, whose tensors have the shape of a split that the compiler
    chose. Its program starts from the same kernels, so what makes one of them faster is found there too, and there the
    split may change.
    """
    if part.reference == "aten":
        return ""
    its = part.part
    around = [
        other.part.name
        for other in parts
        if other.reference == "aten"
        and other is not part
        and other.part.first <= its.first <= its.last <= other.part.last
    ]
    return around[0] if around else ""

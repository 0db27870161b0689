"""Which values of a two-dimensional kernel are one a row, and that divisions by them become products."""

from __future__ import annotations

import math
import random

from support.compiling import interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.analysis import analyse
from islands.operators.structural.axes import BOTH, NONE, axes_of_names
from islands.operators.structural.reciprocal import Reciprocal

SOURCES = kernel_sources()
ROW, COLUMN = frozenset({1}), frozenset({0})


def axes(name: str, *names: str) -> list[frozenset[int]]:
    program = analyse(SOURCES[name])
    assert program is not None
    kernel = next(k for k in program.kernels.values() if program.launches_of(k))
    found = axes_of_names(program, kernel)
    return [found[n] for n in names]


def test_axes_of_what_inductor_writes() -> None:
    wide = axes("inductor_mean_magnitude", "tmp0", "tmp5", "_tmp3", "tmp10", "tmp17")
    assert wide == [BOTH] * 5
    assert axes("inductor_mean_magnitude", "xindex", "xmask", "tmp3", "tmp9") == [COLUMN] * 4
    assert axes("inductor_mean_magnitude", "r0_index", "tmp11") == [ROW] * 2
    assert axes("inductor_mean_magnitude", "tmp6", "xoffset") == [NONE] * 2
    assert axes("inductor_two_norms", "tmp2", "tmp10", "tmp2_mean") == [COLUMN, COLUMN, BOTH]
    assert axes("inductor_softmax", "tmp5", "tmp10") == [COLUMN, BOTH]


def test_divisions_of_tiles_by_one_value_a_row_become_products() -> None:
    """`tmp3 / tmp6`, a mean a row, stays: it is done once anyway."""
    names = ["inductor_mean_magnitude", "inductor_softmax"]
    proposals = [Reciprocal().propose([parent_of(SOURCES[name])], random.Random(0)) for name in names]
    rewritten = [proposal.source for proposal in proposals if proposal is not None]
    assert "(tmp5 * (1.0 / tmp9))" in rewritten[0] and "(tmp3 / tmp6)" in rewritten[0]
    assert "(tmp10 * (1.0 / tmp5))" in rewritten[1]
    answers = interpret_all([*(SOURCES[name] for name in names), *rewritten])
    for expected, found in zip(answers[:2], answers[2:], strict=True):
        assert isinstance(found, list), found
        pairs = zip(expected[0], found[0], strict=True)
        assert expected != found and all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in pairs)


def test_nothing_else_is_divided_otherwise() -> None:
    assert Reciprocal().propose([parent_of(SOURCES["inductor_variance"])], random.Random(0)) is None
    assert Reciprocal().propose([parent_of(SOURCES["inductor_gates"])], random.Random(0)) is None

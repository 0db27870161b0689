"""The crossover takes knobs and kernels from either parent and makes nothing up."""

from __future__ import annotations

import random

from support.parents import kernel_sources, parent_of

from islands.operators.crossover import Crossover
from islands.operators.structural.analysis import analyse
from islands.operators.structural.knobs import hint_knobs, knobs_of
from islands.operators.structural.num_warps import NumWarps
from islands.operators.structural.retune import Retune

SOURCES = kernel_sources()


def choices(source: str) -> dict[str, str | None]:
    program = analyse(source)
    assert program is not None
    return {knob.key: knob.text for knob in [*knobs_of(program), *hint_knobs(program)]}


def relative(source: str, seed: int) -> str:
    """A program that differs from a source in a few knobs."""
    rng = random.Random(seed)
    for _ in range(3):
        proposal = Retune().propose([parent_of(source)], rng)
        source = proposal.source if proposal is not None else source
    return source


def test_every_choice_is_one_of_a_parents() -> None:
    made = 0
    for name in ("linear", "attention", "row_softmax", "split_sum", "bias_gelu"):
        one, other = relative(SOURCES[name], 1), relative(SOURCES[name], 2)
        parents = [parent_of(one), parent_of(other)]
        for seed in range(5):
            child = Crossover().propose(parents, random.Random(seed))
            if child is None:
                continue
            made += 1
            assert child.parents == tuple(p.program_id for p in parents)
            theirs = (choices(one), choices(other))
            assert all(text in (theirs[0].get(key), theirs[1].get(key)) for key, text in choices(child.source).items())
    assert made >= 15


def test_a_kernel_comes_over_whole() -> None:
    one = SOURCES["split_sum"]
    other = one.replace("acc += tl.load(part_ptr", "acc = acc + tl.load(part_ptr").replace("num_warps=1", "num_warps=2")
    children = [Crossover().propose([parent_of(one), parent_of(other)], random.Random(s)) for s in range(12)]
    sources = {child.source for child in children if child is not None}
    assert any("acc = acc + tl.load(part_ptr" in s and "num_warps=1" in s for s in sources)
    assert any("acc += tl.load(part_ptr" in s and "num_warps=2" in s for s in sources)


def test_what_is_known_of_two_parents_is_not_said_of_two_others() -> None:
    one = parent_of(SOURCES["split_sum"])
    for n in (2, 8, 2):
        mate = parent_of(one.source.replace("num_warps=1", f"num_warps={n}").replace("num_warps=4", "num_warps=16"))
        children = [Crossover().propose([one, mate], random.Random(seed)) for seed in range(8)]
        taken = {choices(child.source)["final_mean/0/num_warps"] for child in children if child is not None}
        assert taken == {"1", str(n)}


def test_strangers_and_twins_have_no_child() -> None:
    softmax, linear = parent_of(SOURCES["row_softmax"]), parent_of(SOURCES["linear"])
    assert Crossover().propose([softmax, linear], random.Random(0)) is None
    assert Crossover().propose([softmax, softmax], random.Random(0)) is None


def test_one_difference_leaves_nothing_to_mix() -> None:
    parent = parent_of(SOURCES["linear"])
    proposal = NumWarps().propose([parent], random.Random(0))
    assert proposal is not None
    for seed in range(8):
        assert Crossover().propose([parent, parent_of(proposal.source)], random.Random(seed)) is None

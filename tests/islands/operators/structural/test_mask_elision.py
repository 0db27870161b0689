"""mask_elision in kernels of Inductor: accesses lose their masks, and so do running values that lanes keep."""

from __future__ import annotations

import random

from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.analysis import analyse
from islands.operators.structural.mask_elision import MaskElision
from islands.operators.structural.welford import welford_sites

SOURCES = kernel_sources()
MAGNITUDE = SOURCES["inductor_mean_magnitude"]
# the host knows it alone: neither literals nor what the judge saw say how many rows there are
ROWS_LEFT_OVER = MAGNITUDE.replace("XBLOCK = 2", "XBLOCK = 4").replace(
    ", 6, 2048, XBLOCK", ", len(arg1_1), 2048, XBLOCK"
)


def rewritten(source: str) -> str:
    proposal = MaskElision().propose([parent_of(source)], random.Random(0))
    assert proposal is not None
    return proposal.source


def test_running_values_are_taken_in_every_lane_where_tiles_divide_the_rows() -> None:
    even, odd = rewritten(MAGNITUDE), rewritten(ROWS_LEFT_OVER)
    assert "_tmp3 = (tmp4 if EVEN else tl.where(r0_mask & xmask, tmp4, _tmp3))" in even
    assert even.count("if EVEN else") == 8 and "EVEN=6 % XBLOCK == 0" in even.replace("2048 % R0_BLOCK == 0 and ", "")
    sources = [MAGNITUDE, even, ROWS_LEFT_OVER, odd]
    outputs = interpret_all(sources)
    assert isinstance(outputs[0], list) and outputs == [outputs[0]] * 4
    codes = [launches[0][4] for launches in compile_all(sources)]
    assert codes[0] != codes[1] and codes[2] == codes[3]


def test_masks_that_are_known_to_be_needed_stay() -> None:
    for source in (MAGNITUDE.replace("XBLOCK = 2", "XBLOCK = 4"), SOURCES["inductor_layer_norm"]):
        assert MaskElision().propose([parent_of(source)], random.Random(0)) is None


def test_what_is_chosen_for_another_purpose_stays() -> None:
    """`tl.where(tmp14, tmp12, tmp16)` is the rectifier."""
    assert "tmp17 = tl.where(tmp14, tmp12, tmp16)" in rewritten(MAGNITUDE)


def test_running_means_are_still_known_as_such() -> None:
    program = analyse(rewritten(SOURCES["inductor_two_norms"].replace(", 5, 1300, XBLOCK", ", 6, 1280, XBLOCK")))
    assert program is not None and [len(site.updates) for site in welford_sites(program)] == [2]

"""one_pass leaves rows alone that the registers of one program cannot hold."""

from __future__ import annotations

import random

import pytest
from support.parents import kernel_sources, parent_of

from islands.operators.structural.one_pass import OnePass

SOURCE = kernel_sources()["inductor_mean_magnitude"].replace("XBLOCK = 2", "XBLOCK = 1")


def warps_of(source: str, extent: str, rows: int) -> set[int]:
    """The warps that eight draws gave, for rows of so many elements."""
    source = source.replace(", 6, 2048, XBLOCK", f", 6, {extent}, XBLOCK").replace("XBLOCK = 1", f"XBLOCK = {rows}")
    found = [OnePass().propose([parent_of(source)], random.Random(seed)) for seed in range(8)]
    return {int(proposal.detail.split(", ")[-1].split()[0]) for proposal in found if proposal is not None}


@pytest.mark.parametrize(
    ("extent", "rows", "warps"),
    [
        ("32768", 1, {16, 32}),
        ("32769", 1, set()),
        ("65536", 1, set()),
        ("16384", 2, {16, 32}),
        ("16384", 4, set()),
        ("20000", 1, {16, 32}),
        ("5000", 1, {4, 8, 16, 32}),
        ("arg1_1.numel()", 1, {4, 8, 16, 32}),
    ],
)
def test_takes_rows_that_fit_and_warps_that_hold_them(extent: str, rows: int, warps: set[int]) -> None:
    assert warps_of(SOURCE, extent, rows) == warps


def test_sizes_that_were_seen_count() -> None:
    """Host code passes `x.shape[1]`; the judge saw what that was."""
    source = SOURCE.replace(", 6, 2048, XBLOCK", ", 6, arg1_1.shape[1], XBLOCK")
    parents = [parent_of(source, {"triton_red_fused_0": {"r0_numel": n}}) for n in (8192, 131072)]
    fits, too_long = ([OnePass().propose([p], random.Random(seed)) for seed in range(4)] for p in parents)
    assert all(fits) and not any(too_long)

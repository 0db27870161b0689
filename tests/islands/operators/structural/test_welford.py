"""welford_by_count: which running means it knows, and that lanes and whole rows without a value stay out."""

from __future__ import annotations

import math
import random

import pytest
from support.compiling import interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.analysis import analyse
from islands.operators.structural.welford import welford_sites
from islands.operators.structural.welford_by_count import WelfordByCount

SOURCES = kernel_sources()
VARIANCE = SOURCES["inductor_variance"]
# how many running means of each kernel, and how often lanes are combined
EXPECTED = {
    "inductor_layer_norm": (1, 1),
    "inductor_split_norm": (1, 1),
    "inductor_two_norms": (2, 2),
    "inductor_variance": (1, 1),
}
# the second of two kernels that Inductor splits a long reduction into: no loop
JOIN = VARIANCE[: VARIANCE.index("@triton.jit\ndef inductor_welford_reduce")] + (
    """\
@triton.jit
def join_kernel(mean_ptr, m2_ptr, weight_ptr, out_ptr, n_rows, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    mask = (xindex < n_rows) & (r0_index < 5)
    tmp0 = tl.load(mean_ptr + xindex * 5 + r0_index, mask, other=0.0)
    tmp1 = tl.load(m2_ptr + xindex * 5 + r0_index, mask, other=0.0)
    tmp2 = tl.load(weight_ptr + xindex * 5 + r0_index, mask, other=0.0)
    tmp3, tmp4, tmp5 = inductor_welford(tmp0, tmp1, tmp2, 1)
    tl.store(out_ptr + xindex, tmp3[:, None], xindex < n_rows)
    tl.store(out_ptr + n_rows + xindex, tmp4[:, None] / tmp5[:, None], xindex < n_rows)


def kernel_function(mean, m2, weight):
    out = torch.empty((2, 3), device=mean.device, dtype=torch.float32)
    join_kernel[(2,)](mean, m2, weight, out, 3, XBLOCK=2, R0_BLOCK=8)
    return out


def get_inputs(aligned):
    return [torch.randn(3, 5), torch.rand(3, 5), torch.randint(1, 9, (3, 5)).float()]
"""
)
PARTS = SOURCES["inductor_split_norm"]
HIGH_ROWS = VARIANCE.replace("torch.randn(6, 1500)", "torch.randn(6, 1500) + 300.0")


WITH_NAN = VARIANCE.replace("[torch.randn(6, 1500)]", "[torch.randn(6, 1500).where(torch.rand(6, 1) > 0.5, math.nan)]")
WITH_NAN = f"import math\n{WITH_NAN}"


def variants(source: str) -> list[str]:
    """What it writes: running means by count, and sums about the first value where it can."""
    found = [WelfordByCount().propose([parent_of(source)], random.Random(seed)) for seed in range(24)]
    texts = {p.detail: p.source for p in found if p is not None}
    return [texts[detail] for detail in sorted(texts)]


def counts(source: str) -> list[tuple[int, int]]:
    program = analyse(source)
    assert program is not None
    return [(len(site.updates), len(site.joins)) for site in welford_sites(program)]


def test_applies_to_running_means_of_inductor() -> None:
    found = {name: counts(source) for name, source in SOURCES.items()}
    assert {name: sites[0] for name, sites in found.items() if sites} == EXPECTED
    assert counts(JOIN) == [(0, 1)]


# what makes a running mean one that is not understood, by what is written instead
BROKEN = {
    "an update of another kind": ("new_weight = weight + 1", "new_weight = weight + 2"),
    "another way to combine": (
        "m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w",
        "m2_1 + m2_2 + delta * weight_1 * w2_over_w",
    ),
    "a reset in every step": ("roffset == 0", "roffset >= 0"),
    "what says which step is first is not the offset": ("roffset = r0_offset", "roffset = r0_offset % 1024"),
    "a loop that starts later": ("tl.range(0, r0_numel", "tl.range(128, r0_numel"),
    "weights that start from one": (
        "tmp2_weight = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)",
        "tmp2_weight = tl.full([XBLOCK, R0_BLOCK], 1, tl.float32)",
    ),
    "double precision": (
        "tmp2_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)",
        "tmp2_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float64)",
    ),
    "a mask of the values": ("r0_mask = r0_index < r0_numel", "r0_mask = tl.load(in_ptr0 + r0_index) > 0"),
    "a mask from behind": ("r0_mask = r0_index < r0_numel", "r0_mask = r0_index > 700"),
    "a state that something else changes": (
        "        tmp9 = _tmp8 + tmp1\n",
        "        tmp9 = _tmp8 + tmp1\n        tmp2_mean = tmp2_mean + 0.5\n",
    ),
}


@pytest.mark.parametrize("change", BROKEN)
def test_leaves_alone(change: str) -> None:
    before, after = BROKEN[change]
    source = VARIANCE.replace(before, after)
    assert source != VARIANCE
    assert counts(source) == ([(1, 0)] if change == "another way to combine" else [(0, 1)])


@pytest.mark.parametrize(
    ("before", "after", "n_variants"),
    [
        ("tmp0, [XBLOCK", "tmp0, [XBLOCK", 2),
        ("r0_mask & xmask, eviction_policy='evict_first', other=0.0)", "r0_mask, other=0.0).to(tl.float32)", 2),
        ("tl.broadcast_to(tmp0, ", "tl.broadcast_to(tmp0 * 2.0, ", 1),
        ("(r0_1 + 1500*x0)", "(r0_1 % 700 + 1500*r0_1)", 1),
        ("r0_base = tl.arange(0, R0_BLOCK)", "r0_base = 2 * tl.arange(0, R0_BLOCK)", 1),
        ("tmp7 = tmp5[:, None]", "tmp7 = tmp2_weight", 2),
        ("tmp7 = tmp5[:, None]", "tmp7 = tmp2_m2", 1),
    ],
)
def test_takes_sums_about_first_values_that_are_plain_loads(before: str, after: str, n_variants: int) -> None:
    assert before in VARIANCE
    found = variants(VARIANCE.replace(before, after))
    assert len(found) == n_variants
    loads = [line.strip() for source in found for line in source.splitlines() if "_first = tl.load" in line]
    mask = "" if "r0_mask, other" in after else ", xmask, other=0.0"
    assert loads == [f"tmp2_mean_first = tl.load(in_ptr0 + (0 + 1500*x0){mask}).to(tl.float32)"] * (n_variants - 1)


# the same for values that only some lanes have
BROKEN_PARTS = {
    "lanes that have none first": ("tmp2 = tmp0 < tmp1", "tmp2 = tmp0 > tmp1"),
    "lanes that have one now and then": ("tmp0 = (r0_2 + 1700*x0)", "tmp0 = (r0_2 % 300 + 1700*x0)"),
    "an end that moves": (
        "tmp1 = tl.full([1, 1], 5000, tl.int32)",
        "tmp1 = tl.full([1, 1], 5000, tl.int32) - r0_offset",
    ),
    "values that count twice": ("tmp7 = tl.full([1, 1], 1.0,", "tmp7 = tl.full([1, 1], 2.0,"),
    "groups with a spread of their own": ("tmp4 = tl.full([1, 1], 0.0,", "tmp4 = tl.full([1, 1], 0.5,"),
}


@pytest.mark.parametrize("change", BROKEN_PARTS)
def test_leaves_parts_alone(change: str) -> None:
    before, after = BROKEN_PARTS[change]
    source = PARTS.replace(before, after)
    assert source != PARTS and counts(PARTS) == [(1, 1)] and counts(source) == [(0, 1)]


def test_gives_the_same_with_rows_and_lanes_left_over_and_far_from_zero() -> None:
    """Six rows in programs of four, 1500 columns in steps of 128, a last part of 1600 after two of 1700, and rows whose
    mean is 300 times their deviation."""
    by_count = [VARIANCE, HIGH_ROWS, JOIN, PARTS]
    about_first = [VARIANCE, HIGH_ROWS, SOURCES["inductor_two_norms"], WITH_NAN]
    rewritten = [variants(source)[0] for source in by_count] + [variants(source)[1] for source in about_first]
    sources = [*by_count, *about_first]
    assert [s.count("welford_total(") > 0 for s in rewritten] == [True] * 4 + [False] * 4
    answers = interpret_all([*sources, *rewritten])
    for expected, found in zip(answers[:8], answers[8:], strict=True):
        assert isinstance(expected, list) and isinstance(found, list), (expected, found)
        for one, other in zip(expected, found, strict=True):
            pairs = list(zip(one, other, strict=True))
            assert all(math.isclose(a, b, rel_tol=1e-5, abs_tol=2e-6) or (a != a and b != b) for a, b in pairs)

"""split_reduction and split_k: which loops can be done in shares, and that the joined shares are what the loop gave."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from evaluators.gates.static import check_policy
from islands.operators import Proposal
from islands.operators.structural.analysis import analyse
from islands.operators.structural.shares import share_sites
from islands.operators.structural.split_k import SplitK
from islands.operators.structural.split_reduction import SplitReduction

SOURCES = kernel_sources()

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
# a product of rows with a vector, grid by meta-parameters, two launch sites, tiles written at the launch
ROW_PRODUCT = (
    HEAD
    + '''
@triton.jit
def gemv(A, x, y, M, N, stride, alpha, BM: tl.constexpr, BN: tl.constexpr):
    """y = alpha * A @ x"""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    A = A + rm[:, None] * stride + rn[None, :]
    x = x + rn
    acc = tl.zeros((BM,), dtype=tl.float32)
    for n in range(0, N, BN):
        a = tl.load(A, mask=(rm < M)[:, None] & (n + rn < N)[None, :], other=0.0)
        v = tl.load(x, mask=n + rn < N, other=0.0)
        acc += tl.sum(a * v[None, :], axis=1)
        A += BN
        x += BN
    tl.store(y + rm, alpha * acc, mask=rm < M)


def kernel_function(A, x):
    M, N = A.shape
    y = torch.empty((M,), device=A.device, dtype=A.dtype)
    if M > 2:
        gemv[lambda META: (triton.cdiv(M, META["BM"]),)](A, x, y, M, N, A.stride(0), 2.0, BM=4, BN=64, num_warps=2)
    else:
        gemv[(M,)](A, x, y, M, N, A.stride(0), 2.0, 1, 128)
    return y


def get_inputs(aligned):
    return [torch.randn(12 if aligned else 7, 512 if aligned else 331), torch.randn(512 if aligned else 331)]
'''
)
# sums of columns, several accumulators of two kinds, a loop over rows with a start of its own
COLUMN_STATISTICS = (
    HEAD
    + """
@triton.jit
def columns_kernel(x_ptr, sum_ptr, top_ptr, low_ptr, skip, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    low = tl.full([BLOCK], 1.0e30, tl.float32)
    for row in range(skip, n_rows):
        v = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total = v * v + total
        top = tl.maximum(v, top)
        low = tl.minimum(low, v)
    tl.store(sum_ptr + cols, total, mask=cols < n_cols)
    tl.store(top_ptr + cols, top, mask=cols < n_cols)
    tl.store(low_ptr + cols, low, mask=cols < n_cols)


def kernel_function(x):
    n_rows, n_cols = x.shape
    out = torch.empty((3, n_cols), device=x.device, dtype=torch.float32)
    BLOCK = 64
    columns_kernel[(triton.cdiv(n_cols, BLOCK),)](x, out[0], out[1], out[2], 3, n_rows, n_cols, BLOCK=BLOCK)
    return out


def get_inputs(aligned):
    return [torch.randn(32 if aligned else 29, 128 if aligned else 100)]
"""
)
HAND_WRITTEN = {
    "row_product": ROW_PRODUCT,
    "column_statistics": COLUMN_STATISTICS,
}
EXPECTED = {
    "split_reduction": {
        *("conv_rows", "exact_scale", "log_softmax", "row_entropy", "row_l2", "row_norm", "row_softmax", "split_sum"),
        *("window_max", "row_product", "column_statistics"),
    },
    "split_k": {
        *("attention", "batched_product", "linear", "tutorial_product"),
        *("tma_attention", "tma_linear", "tma_product"),
    },
}
TECHNIQUES = (SplitReduction(), SplitK())


@pytest.mark.parametrize("technique", TECHNIQUES, ids=[t.name for t in TECHNIQUES])
def test_applies_to(technique: SplitReduction | SplitK) -> None:
    sources = {**SOURCES, **HAND_WRITTEN}
    found = {name for name, source in sources.items() if technique.propose([parent_of(source)], random.Random(0))}
    assert found == EXPECTED[technique.name]


# what makes a loop one that cannot be shared out, by what is written instead in a kernel that can
BROKEN = {
    "writes in the loop": ("top = tl.maximum(v, top)", "top = tl.maximum(v, top)\n        tl.store(sum_ptr, 0.0)"),
    "an atomic before it": (
        "total = tl.zeros((BLOCK,), tl.float32)",
        "total = tl.zeros((BLOCK,), tl.float32)\n    tl.atomic_add(sum_ptr, 1.0)",
    ),
    "a sum that starts from one": ("tl.zeros((BLOCK,), tl.float32)", "tl.full((BLOCK,), 1.0, tl.float32)"),
    "a half-precision sum": ("tl.zeros((BLOCK,), tl.float32)", "tl.zeros((BLOCK,), tl.float16)"),
    "a running value that is read": ("low = tl.minimum(low, v)", "low = tl.minimum(low, v + total)"),
    "a recurrence": ("total = v * v + total", "total = v * v + 0.5 * total"),
    "the last tile is read later": ("tl.store(top_ptr + cols, top,", "tl.store(top_ptr + cols, v,"),
    "the row is read later": ("tl.store(top_ptr + cols, top,", "tl.store(top_ptr + cols, top + row,"),
    "a branch": ("low = tl.minimum(low, v)", "if row > 4:\n            low = tl.minimum(low, v)"),
    "backwards": ("range(skip, n_rows)", "range(n_rows, skip, -1)"),
    "a launch inside an expression": ("columns_kernel[", "_ = columns_kernel["),
    "arguments behind a star": ("n_rows, n_cols, BLOCK=BLOCK", "*(n_rows, n_cols), BLOCK=BLOCK"),
}


@pytest.mark.parametrize("change", BROKEN)
def test_does_not_apply_where_shares_cannot_be_joined(change: str) -> None:
    before, after = BROKEN[change]
    source = COLUMN_STATISTICS.replace(before, after)
    assert source != COLUMN_STATISTICS
    program, whole = analyse(source), analyse(COLUMN_STATISTICS)
    assert program is not None and whole is not None
    assert len(share_sites(whole)) == 1 and share_sites(program) == []


# sums that depend on how high a running maximum is by then, in a kernel that can be shared out
BELOW_A_MAXIMUM = {
    "not at all": ("", True),
    "of exponentials that are not rescaled": ("        count += tl.sum(p, 1)\n", False),
    "of the maximum itself": ("        count += m_new\n", False),
    "of something else": ("        count += tl.sum(s, 1)\n", True),
}


@pytest.mark.parametrize("change", BELOW_A_MAXIMUM)
def test_sums_below_a_running_maximum(change: str) -> None:
    line, is_shareable = BELOW_A_MAXIMUM[change]
    start, end = "    den = tl.zeros((BLOCK_Q,), tl.float32)\n", "        m = m_new\n"
    source = SOURCES["attention"].replace(start, f"{start}    count = tl.zeros((BLOCK_Q,), tl.float32)\n")
    source = source.replace(end, f"{line}{end}").replace("acc / den[:, None]", "(acc / den[:, None]) * count[:, None]")
    program = analyse(source)
    assert program is not None and "count[:, None]" in source
    assert bool(share_sites(program)) == is_shareable


def test_a_rescaled_sum_may_read_the_maximum_in_exponents_alone() -> None:
    source = SOURCES["attention"].replace("+ tl.sum(p, 1)", "+ tl.sum(p, 1) * m_new")
    program = analyse(source)
    assert program is not None and source != SOURCES["attention"]
    assert share_sites(program) == []


def test_only_where_the_gpu_has_room() -> None:
    source = SOURCES["row_l2"]
    for n_programs, largest in ((64, 16), (1000, 4), (4096, 0)):
        parent = parent_of(source, {"l2_rows": {}}, n_programs)
        drawn = [SplitReduction().propose([parent], random.Random(seed)) for seed in range(20)]
        shares = {int(p.detail.split()[-2]) for p in drawn if p is not None}
        assert max(shares, default=0) == largest


def test_a_tile_at_the_launch_stays_one_knob() -> None:
    proposal = proposal_of("tutorial_product")
    assert (
        proposal.source.count("BLOCK_SIZE_M=BLOCK_SIZE_M_TILE") == 2 and "BLOCK_SIZE_M_TILE = 32\n" in proposal.source
    )
    assert "triton.cdiv(M, BLOCK_SIZE_M_TILE)" in proposal.source


def proposal_of(name: str, source: str | None = None, seed: int = 0) -> Proposal:
    source = source or {**SOURCES, **HAND_WRITTEN}[name]
    drawn = (t.propose([parent_of(source)], random.Random(seed)) for t in TECHNIQUES)
    return next(p for p in drawn if p is not None)


@pytest.mark.parametrize("name", sorted(EXPECTED["split_reduction"] | EXPECTED["split_k"]))
def test_host_code_stays_within_the_policy(name: str) -> None:
    source = proposal_of(name).source
    entry = "ModelNew" if "class ModelNew" in source else "kernel_function"
    result = check_policy(source, entry)
    assert result.passed, result.reason


@cache
def judged(aligned: bool) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Launches and outputs of the hand-written kernels, before and after."""
    names = [*HAND_WRITTEN, "tutorial_product"]
    # the second loop of a kernel is shared out when the first has been
    twice = proposal_of("", proposal_of("row_norm").source, seed=1).source
    before = [*HAND_WRITTEN.values(), SOURCES["tutorial_product"], SOURCES["row_norm"]]
    after = [*(proposal_of(name).source for name in names), twice]
    answers = [f(texts, aligned) for texts in (before, after) for f in (compile_all, interpret_all)]
    return dict(zip([*names, "row_norm, twice"], zip(*answers, strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("name", [*HAND_WRITTEN, "tutorial_product", "row_norm, twice"])
def test_shares_give_what_the_loop_gave(name: str, aligned: bool) -> None:
    old_launches, expected, launches, outputs = judged(aligned)[name]
    assert isinstance(launches, list), launches
    assert isinstance(outputs, list), outputs
    assert len(launches) > len(old_launches)
    for one, other in zip(expected, outputs, strict=True):
        assert all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(one, other, strict=True))

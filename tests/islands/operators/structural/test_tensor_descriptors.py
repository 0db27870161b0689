"""tensor_descriptors: which loads are tiles of a matrix, and that the host asks for descriptors only where it may.

Of the kernels at hand `linear`, `transpose`, `tutorial_product` and the suite's matmul have such loads; two more are
written here in styles that public code has.
"""

from __future__ import annotations

import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.compiling import compile_all, interpret_all
from support.parents import kernel_sources, parent_of

from evaluators.gates.static import check_policy
from islands.operators.structural.tensor_descriptors import TensorDescriptors

SOURCES = kernel_sources()
MATMUL = Path(__file__).parents[4] / "evaluators" / "suite" / "seeds" / "matmul.py"
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

# rows in a tile of two dimensions, offsets in 64 bits, indices that are expanded where they are made
ROW_TILE = (
    HEAD
    + """
@triton.jit
def rms_rows(x_ptr, y_ptr, n_rows, n_cols, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    rows = block * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    inside = (rows < n_rows) & (columns < n_cols)
    x = tl.load(x_ptr + rows * n_cols + columns, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / n_cols + eps)
    tl.store(y_ptr + rows * n_cols + columns, x * scale[:, None], mask=inside)


def kernel_function(x):
    y = torch.empty_like(x)
    rms_rows[(triton.cdiv(x.shape[0], 4),)](x, y, x.shape[0], x.shape[1], 1e-6, ROWS=4, COLUMNS=128, num_warps=2)
    return y


def get_inputs(aligned):
    return [torch.randn(16, 128) if aligned else torch.randn(13, 98)]
"""
)
# x.T @ x for a block of columns: one matrix, two tiles of it, one of them transposed; contiguous hints
GRAM = (
    HEAD
    + """
@triton.jit
def gram(x, out, n, d, stride, B: tl.constexpr, BLOCK_K: tl.constexpr):
    i = tl.max_contiguous(tl.multiple_of(tl.program_id(0) * B + tl.arange(0, B), B), B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k0 in tl.range(0, n, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        left = tl.load(x + k[None, :] * stride + i[:, None], mask=(k[None, :] < n) & (i[:, None] < d), other=0.0)
        right = tl.load(x + k[:, None] * stride + j[None, :], mask=(k[:, None] < n) & (j[None, :] < d), other=0.0)
        acc += tl.dot(left, right)
    tl.store(out + i[:, None] * d + j[None, :], acc, mask=(i[:, None] < d) & (j[None, :] < d))


def kernel_function(x):
    n, d = x.shape
    out = torch.empty((d, d), device=x.device, dtype=torch.float32)
    gram[(triton.cdiv(d, 32), triton.cdiv(d, 32))](x, out, n, d, x.stride(0), B=32, BLOCK_K=16)
    return out


def get_inputs(aligned):
    return [torch.randn(96, 64) if aligned else torch.randn(75, 42)]
"""
)
HAND_WRITTEN = {"row_tile": ROW_TILE, "gram": GRAM}


def proposal_of(source: str, hardware_id: str = "nvidia-h200") -> str | None:
    parent = parent_of(source)
    parent = parent._replace(verdict=parent.verdict.model_copy(update={"hardware_id": hardware_id}))
    proposal = TensorDescriptors().propose([parent], random.Random(0))
    return None if proposal is None else proposal.source


def test_applies_to() -> None:
    found = {name for name, source in {**SOURCES, **HAND_WRITTEN}.items() if proposal_of(source) is not None}
    assert found == {"linear", "transpose", "tutorial_product", *HAND_WRITTEN}
    assert proposal_of(MATMUL.read_text()) is not None


def test_only_for_gpus_that_copy_tiles() -> None:
    known = {"nvidia-h200": True, "nvidia-b200": True, "a100": False, "l40s": False}
    assert {gpu: proposal_of(GRAM, gpu) is not None for gpu in known} == known


@pytest.mark.parametrize("name", ["linear", "transpose", "tutorial_product", *HAND_WRITTEN])
def test_host_code_stays_within_the_policy(name: str) -> None:
    source = proposal_of({**SOURCES, **HAND_WRITTEN}[name]) or ""
    result = check_policy(source, "ModelNew" if "class ModelNew" in source else "kernel_function")
    assert result.passed, result.reason


def test_both_tiles_of_one_matrix_are_described() -> None:
    source = proposal_of(GRAM) or ""
    assert "tl.trans(x_tiles.load([k0, tl.program_id(0) * B]))" in source
    assert "x_tiles.load([k0, tl.program_id(1) * B]) if" in source
    assert source.count("TensorDescriptor(x, [n, d], [x.stride(0), 1], [16, 32])") == 0  # tiles have names
    assert source.count("TensorDescriptor(x, [n, d], [x.stride(0), 1], [BLOCK_K_TILE, B_TILE])") == 1


# what makes a tile one that a descriptor does not give, by what is written instead
BROKEN = {
    "no mask": ("mask=(k[:, None] < n) & (j[None, :] < d), other=0.0", ""),
    "half a mask": ("(k[:, None] < n) & (j[None, :] < d)", "(k[:, None] < n)"),
    "another bound": ("(j[None, :] < d)", "(j[None, :] < d - 1)"),
    "another index": ("(j[None, :] < d)", "(i[None, :] < d)"),
    "ones instead of what is masked": ("(j[None, :] < d), other=0.0", "(j[None, :] < d), other=1.0"),
    "every other column": ("+ j[None, :], mask", "+ j[None, :] * 2, mask"),
    "an offset for all": ("x + k[:, None]", "x + n + k[:, None]"),
    "an index that the loop changes": ("acc += tl.dot(left, right)", "acc += tl.dot(left, right)\n        j += 1"),
    "a base that moves": ("acc += tl.dot(left, right)", "acc += tl.dot(left, right)\n        x += 1"),
}


@pytest.mark.parametrize("change", BROKEN)
def test_such_a_load_is_left_alone(change: str) -> None:
    before, after = BROKEN[change]
    assert before in GRAM
    source = proposal_of(GRAM.replace(before, after)) or ""
    assert "x_tiles.load([k0, tl.program_id(1) * B])" not in source


@cache
def judged(aligned: bool) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Launches and outputs of the hand-written kernels, before and after."""
    before = list(HAND_WRITTEN.values())
    after = [proposal_of(source) or "" for source in before]
    answers = [f(texts, aligned) for texts in (before, after) for f in (compile_all, interpret_all)]
    return dict(zip(HAND_WRITTEN, zip(*answers, strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_machine_code_changes_where_the_host_may_describe(name: str, aligned: bool) -> None:
    old_launches, expected, launches, outputs = judged(aligned)[name]
    assert isinstance(launches, list), launches
    assert isinstance(outputs, list), outputs
    # rows of 98 or 42 numbers are no multiple of 16 bytes
    assert (launches[0][4] != old_launches[0][4]) == aligned
    for one, other in zip(expected, outputs, strict=True):
        assert all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(one, other, strict=True))

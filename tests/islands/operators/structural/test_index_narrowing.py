"""index_narrowing: 32-bit offsets where every tensor allows them, decided by the host for each launch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.compiling import compile_all
from support.parents import kernel_sources, parent_of

from evaluators.gates.static import check_policy
from islands.operators.structural.index_narrowing import IndexNarrowing

SOURCES = kernel_sources()
SEEDS = Path(__file__).parents[4] / "evaluators" / "suite" / "seeds"

# offsets that flow through a loop, a comparison, a helper of the language and a parameter that is moved
COPY = """import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, index_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    first = tl.cast(tl.program_id(0), tl.int64)
    lane = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    x_ptr += first * n_cols
    for row in range(first, n_rows, tl.num_programs(0)):
        at = tl.load(index_ptr + row).to(tl.int64)
        offsets = row.to(tl.int64) * n_cols + lane
        v = tl.load(x_ptr + at + lane, mask=lane < n_cols, other=0.0)
        tl.store(y_ptr + offsets, v, mask=(lane < n_cols) & (row < n_rows))


def kernel_function(x, index):
    y = torch.empty_like(x)
    copy_kernel[(2,)](x, y, index, x.shape[0], x.shape[1], BLOCK=256)
    return y
"""


def proposal_of(source: str) -> str | None:
    proposal = IndexNarrowing().propose([parent_of(source)], random.Random(0))
    return None if proposal is None else proposal.source


def test_only_casts_of_what_was_not_loaded() -> None:
    source = proposal_of(COPY)
    assert source is not None
    assert source.count("tl.int64 if WIDE else tl.int32") == 2
    assert "tl.load(index_ptr + row).to(tl.int64)" in source
    assert "for t in (index, x, y,) if t is not None" in source  # a tensor may be absent


# where the 64-bit value is more than an address
BROKEN = {
    "it is stored": ("tl.store(y_ptr + offsets, v,", "tl.store(y_ptr + offsets, v + offsets,"),
    "it is a load's other value": ("other=0.0)", "other=first)"),
    "it is a seed": ("v = tl.load(", "v = tl.rand(first, lane) + tl.load("),
    "a condition": ("v = tl.load(", "if first:\n            v = tl.load("),
    "an atomic": ("tl.store(y_ptr + offsets, v,", "tl.atomic_add(y_ptr + offsets, v,"),
    "an address of unknown origin": ("tl.load(index_ptr + row)", "tl.load((lane + index_ptr) + row)"),
}


@pytest.mark.parametrize("change", BROKEN)
def test_does_not_apply_where(change: str) -> None:
    before, after = BROKEN[change]
    assert before in COPY
    assert proposal_of(COPY.replace(before, after)) is None


@pytest.mark.parametrize("seed", sorted(p.stem for p in SEEDS.glob("*.py")))
def test_seeds_of_the_suite(seed: str) -> None:
    source = (SEEDS / f"{seed}.py").read_text()
    narrowed = proposal_of(source)
    assert (narrowed is not None) == (seed != "matmul")
    if narrowed is not None:
        result = check_policy(narrowed, "ModelNew")
        assert result.passed, result.reason


@pytest.mark.slow
def test_never_where_a_tensor_needs_64_bits() -> None:
    """Tensors without memory: a little below the limit, and beyond it as a whole or by the strides of a view alone."""
    source = SOURCES["log_softmax"]
    narrowed = proposal_of(source)
    assert narrowed is not None
    meta = 'torch.empty((40000, 50000), device="meta")'
    sizes = {
        "small": meta,
        "large": meta.replace("40000", "43000"),
        "a view": f"{meta.replace('40000', '43000')}[:, :64]",
    }
    texts = [
        f"{text.split('def get_inputs')[0]}\n\ndef get_inputs(aligned):\n    return [{size}]\n"
        for size in sizes.values()
        for text in (source, narrowed)
    ]
    found = compile_all(texts)
    assert all(isinstance(launches, list) for launches in found), found
    code = [launches[0][4] for launches in found]
    changed = {name: code[2 * i] != code[2 * i + 1] for i, name in enumerate(sizes)}
    assert changed == {"small": True, "large": False, "a view": False}

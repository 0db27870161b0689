"""warp_specialize: only where the compiler divides the warps, which shows in how many there are.

No kernel that was at hand loads tiles by descriptors, so three of tests/data (`tma_*`) were written in styles
of public code; the others are kernels that `tensor_descriptors` rewrote.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.compiling import compile_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.tensor_descriptors import TensorDescriptors
from islands.operators.structural.warp_specialize import WarpSpecialize

SOURCES = kernel_sources()
MATMUL = Path(__file__).parents[4] / "evaluators" / "suite" / "seeds" / "matmul.py"
DESCRIBED = ("tma_attention", "tma_linear", "tma_product")
SIZES = "[torch.randn(m, k).half(), torch.randn(k, n).half()]"


def proposal_of(source: str, hardware_id: str = "nvidia-h200") -> str | None:
    parent = parent_of(source)
    parent = parent._replace(verdict=parent.verdict.model_copy(update={"hardware_id": hardware_id}))
    proposal = WarpSpecialize().propose([parent], random.Random(0))
    return None if proposal is None else proposal.source


def rewritten() -> dict[str, str]:
    """Half-precision products whose pointers became descriptors."""
    matmul = (
        f"{MATMUL.read_text()}\n\ndef get_inputs(aligned):\n    m, n, k = (128, 64, 96) if aligned else (70, 50, 91)"
    )
    tutorial = SOURCES["tutorial_product"]
    before = {
        "matmul": f"{matmul}\n    return {SIZES}\n",
        "tutorial_product": tutorial.replace("[torch.randn(m, k), torch.randn(k, n)]", SIZES),
    }
    proposals = {n: TensorDescriptors().propose([parent_of(s)], random.Random(0)) for n, s in before.items()}
    return {name: proposal.source for name, proposal in proposals.items() if proposal is not None}


def test_applies_to() -> None:
    """Loops over pointers are for the tensor memory of Blackwell alone."""
    products = {"attention", "batched_product", "linear", "tutorial_product", *DESCRIBED}
    found = {
        gpu: {name for name, source in SOURCES.items() if proposal_of(source, gpu) is not None}
        for gpu in ("nvidia-h200", "nvidia-b200", "nvidia-a100")
    }
    assert found == {"nvidia-h200": set(DESCRIBED), "nvidia-b200": products, "nvidia-a100": set()}


def test_the_tile_and_the_warps_follow() -> None:
    source = SOURCES["tma_linear"].replace("BLOCK_M = 64", "BLOCK_M = 128").replace("num_warps=4", "num_warps=8")
    proposal = proposal_of(source) or ""
    assert "BLOCK_M = 64" in proposal and "num_warps=4" in proposal


def test_a_tile_that_comes_in_by_pointers_beside_a_descriptor() -> None:
    source = SOURCES["tma_product"].replace(
        "b_desc.load([k, column])", "tl.load(c_ptr + k + tl.zeros((BK, BN), tl.int32))"
    )
    assert proposal_of(source) is None and proposal_of(source, "nvidia-b200") is not None


def test_float32_products_that_say_so_are_left_alone() -> None:
    source = SOURCES["tma_product"].replace("tl.dot(a, b, total)", 'tl.dot(a, b, total, input_precision="ieee")')
    assert proposal_of(source) is None


def test_a_flag_that_is_there_is_left_alone() -> None:
    assert proposal_of(proposal_of(SOURCES["tma_product"]) or "") is None


@pytest.mark.slow
def test_warps_are_divided() -> None:
    """Four warps become twelve, where descriptors are to be had: a flag alone would show in nothing."""
    sources = {**{name: SOURCES[name] for name in DESCRIBED}, **rewritten()}
    assert len(sources) == 5
    proposals = [proposal_of(source) or "" for source in sources.values()]
    for aligned in (True, False):
        launches = dict(zip(sources, compile_all(proposals, aligned), strict=True))
        assert all(isinstance(found, list) for found in launches.values()), launches
        warps = {name: found[0][2][0] for name, found in launches.items()}
        assert warps == {name: 12 if aligned or name in DESCRIBED else 4 for name in sources}

"""Launch grids written out: Inductor keeps a rule, plain Triton needs an expression over sizes and block sizes."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.steps import Kernel

MAX_Y = 65535  # CUDA C++ Programming Guide, "Technical Specifications": y and z of a grid

# the rule, and per dimension of the grid the size and the block size that it divides
_RULES = {
    "Grid1D": (("xnumel", "XBLOCK"),),
    "Grid2D": (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK")),
    "Grid3D": (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK"), ("znumel", "ZBLOCK")),
    "BatchMatmulGrid3D": (("znumel", "ZBLOCK"), ("ynumel", "YBLOCK"), ("xnumel", "XBLOCK")),
    "SplitScanGrid": (("r0_numel", "R0_BLOCK"), ("xnumel", "")),
    "MixOrderReductionGrid": (("xnumel", "RSPLIT_SIZE"),),
}


def grid_text(kernel: Kernel, sizes: Mapping[str, object], blocks: Mapping[str, str]) -> str:
    """The grid of a launch as a tuple.

    Args:
        sizes: the values of the kernel's parameters that are numbers: "xnumel", "_grid_0".
        blocks: what stands for each block size: {"XBLOCK": "XBLOCK"}.

    Raises:
        DecompositionError: the rule is not known here.
    """
    if kernel.grid_type == "FixedGrid":
        return _tuple([str(sizes.get(said, said)) for said in kernel.fixed_grid])
    if kernel.grid_type == "CooperativeReductionGrid":
        return _tuple([blocks["RSPLIT"], _blocks("xnumel", "XBLOCK", sizes, blocks)])
    if kernel.grid_type == "Grid2DWithYZOverflow":
        return _overflowing(sizes, blocks)
    rule = _RULES.get(kernel.grid_type)
    if rule is None:
        raise DecompositionError(f"the grid of {kernel.name} follows a rule that is not known: {kernel.grid_type}")
    return _tuple([_blocks(size, block, sizes, blocks) for size, block in rule])


def _blocks(size: str, block: str, sizes: Mapping[str, object], blocks: Mapping[str, str]) -> str:
    return f"triton.cdiv({sizes[size]}, {blocks[block]})" if block in blocks else str(sizes[size])


def _overflowing(sizes: Mapping[str, object], blocks: Mapping[str, str]) -> str:
    """More blocks in y than a grid can have go to z."""
    x, y = _blocks("xnumel", "XBLOCK", sizes, blocks), _blocks("ynumel", "YBLOCK", sizes, blocks)
    return _tuple([x, f"triton.cdiv({y}, triton.cdiv({y}, {MAX_Y}))", f"triton.cdiv({y}, {MAX_Y})"])


def _tuple(sizes: list[str]) -> str:
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

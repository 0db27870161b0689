"""tile_size: how much of a row or of a matrix one program, or one iteration of its loop, holds."""

from __future__ import annotations

from islands.operators.structural.knobs import KnobKind
from islands.operators.structural.setting import KnobTechnique


class TileSize(KnobTechnique):
    """Powers of two, near ones more often, also jumps by 4 and 16. Only tiles that a loop or the grid completes."""

    name = "tile_size"
    prior = 0.08
    citation = "Tillet et al. 2019, Triton: tiled neural network computations, https://doi.org/10.1145/3315508.3329973"
    kind = KnobKind.TILE

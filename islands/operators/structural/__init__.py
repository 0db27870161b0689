"""Structural operators: source-to-source rewrites of Triton programs, one technique a file.

A program is analysed once (`analysis.analyse`) into *sites* with positions in its text. A technique picks a site and
answers with a splice of text, checked by parsing. A *knob* is a value with a place, under a key that related programs
share.
"""

from islands.operators.base import Operator


def structural_operators() -> list[Operator]:
    """One operator per technique, what pays most often on a GPU first."""
    from islands.operators.structural.host_constant import HostConstant
    from islands.operators.structural.max_registers import MaxRegisters
    from islands.operators.structural.num_stages import NumStages
    from islands.operators.structural.num_warps import NumWarps
    from islands.operators.structural.retune import Retune
    from islands.operators.structural.tile_size import TileSize

    return [Retune(), NumWarps(), TileSize(), NumStages(), HostConstant(), MaxRegisters()]

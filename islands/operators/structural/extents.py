"""How far a walk over a row goes, and how much shared memory a loop needs whose loads run ahead."""

from __future__ import annotations

import math
from collections.abc import Mapping

from islands.operators.structural.accesses import accesses_of
from islands.operators.structural.analysis import Program, Scope, integer
from islands.operators.structural.kernels import loops_of, tile_uses
from islands.operators.structural.row_loops import row_loops
from islands.operators.structural.technique import Observed

SHARED_BYTES = 227 * 1024
"""What a program may take of a multiprocessor's shared memory: Hopper, CUDA C++ Programming Guide, table of compute
capabilities. Other GPUs have less; what does not fit there, the compiler refuses."""
_ELEMENT_BYTES = 4


def extent_value(program: Program, observed: Observed, kernel: Scope, name: str) -> int | None:
    """The value of a kernel's parameter: as it was seen, or the largest that launches write as a literal."""
    seen = observed.value(kernel.name, name)
    if seen is not None:
        return seen
    launches = program.launches_of(kernel)
    written = [integer(x.arguments[name].value) for x in launches if name in x.arguments]
    return max((n for n in written if n is not None), default=None)


def longest_tile(program: Program, observed: Observed, kernel: Scope, tile: str) -> int | None:
    """The power of two from which a tile covers the rows that loops walk over by it; None where that is not known."""
    extents = {loop.extent for loop in row_loops(program, kernel) if loop.tile == tile}
    values = [extent_value(program, observed, kernel, extent) for extent in extents]
    known = [value for value in values if value is not None]
    return 1 << (max(known) - 1).bit_length() if known and len(known) == len(values) else None


def shared_bytes(program: Program, kernel: Scope, tiles: Mapping[str, int], stages: Mapping[int, int]) -> int:
    """What the loop that needs most takes for loads of later iterations, as if every element had four bytes.

    Args:
        tiles: the extents of the kernel's tiles.
        stages: by index of the loop among the kernel's loops.
    """
    shapes = [tiles[name] for name, use in tile_uses(program, kernel).items() if use.is_shape and name in tiles]
    counts = _loads_in_loops(program, kernel)
    needed = [counts[i] * max(n - 1, 0) for i, n in stages.items() if i < len(counts)]
    return max(needed, default=0) * math.prod(shapes) * _ELEMENT_BYTES


def _loads_in_loops(program: Program, kernel: Scope) -> list[int]:
    """How many loads each loop of a kernel has."""

    def compute() -> list[int]:
        loads = [a.call for a in accesses_of(program, kernel) if a.is_load]
        return [sum(loop.node in program.ancestors(load) for load in loads) for loop in loops_of(program, kernel)]

    return program.derived(("loads in loops", id(kernel)), compute)

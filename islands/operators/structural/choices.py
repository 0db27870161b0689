"""Which values are worth trying for a knob."""

from __future__ import annotations

import random
from collections.abc import Sequence

from islands.operators.structural.knobs import Knob, KnobKind, TileShape
from islands.operators.structural.technique import Observed

WARPS = (1, 2, 4, 8, 16, 32)  # a block has at most 1024 threads of 32 to a warp
STAGES = (1, 2, 3, 4, 5, 6)
REGISTERS = (32, 40, 48, 64, 80, 96, 128, 168, 255)  # per thread; multiples of 8, at most 255
TILES = {
    TileShape.ROW: tuple(2**k for k in range(6, 17)),  # 64 to 65536 elements
    TileShape.GRID: tuple(2**k for k in range(14)),
    TileShape.PRODUCT: (16, 32, 64, 128, 256),  # 16 is the least that `tl.dot` takes
}
GROUPS = (1, 2, 4, 8, 16, 32)

_JUMPS = (
    1 / 32,
    1 / 16,
    1 / 8,
    1 / 4,
    1 / 4,
    1 / 2,
    1 / 2,
    1 / 2,
    2,
    2,
    2,
    4,
    4,
    8,
    16,
)  # neighbours more often than far values
_CHOICES = {
    KnobKind.WARPS: WARPS,
    KnobKind.STAGES: STAGES,
    KnobKind.LOOP: STAGES,
    KnobKind.REGISTERS: REGISTERS,
}
_LAUNCH_DEFAULTS = {KnobKind.WARPS: 4, KnobKind.STAGES: 3}
_BEST_ELEMENTS_PER_THREAD = (4, 8, 8, 16, 16, 32, 64)


def current_value(knob: Knob, observed: Observed) -> int | None:
    """What the knob is today: as written, else as seen in the parent's launch, else Triton's own default."""
    if knob.literal is not None:
        return knob.literal
    seen = observed.value(knob.kernel, knob.parameter)
    if seen is not None or knob.text is not None:
        return seen
    return _LAUNCH_DEFAULTS.get(knob.kind)


def draw_value(knob: Knob, observed: Observed, rng: random.Random) -> int | None:
    """Another value for a knob, or None when there is no other."""
    current = current_value(knob, observed)
    if knob.kind is KnobKind.LOOP and knob.text is None:
        current = 1  # a loop without the option does not run ahead
    if knob.kind in _CHOICES:
        return _other(_CHOICES[knob.kind], current, rng)
    if knob.kind is KnobKind.TILE and knob.use is not None and knob.use.is_group:
        return _other(GROUPS, current, rng)
    return draw_size(current, tile_choices(knob), rng)


def tile_choices(knob: Knob) -> Sequence[int]:
    """The sizes that a tile may have: small counts of rows, rows, or the side of a two-dimensional tile."""
    if knob.kind is KnobKind.TILE and knob.use is not None and not knob.use.is_shape:
        return GROUPS
    if knob.kind is KnobKind.CONSTANT:
        return ()
    return TILES[knob.shape]


def draw_size(current: int | None, allowed: Sequence[int], rng: random.Random) -> int | None:
    """A jump by a power of two from the current size, near values more often; any allowed size where none is known."""
    if current is None or current <= 0:
        return rng.choice(allowed) if allowed else None
    jumps = [int(current * jump) for jump in _JUMPS if current * jump >= 1 and current * jump % 1 == 0]
    if allowed:
        inside = [size for size in jumps if allowed[0] <= size <= allowed[-1]]
        jumps = inside or [size for size in allowed if size != current]
    return rng.choice(jumps) if jumps else None


def matching_warps(tile: int, rng: random.Random) -> int:
    """Warps for a row tile so that a thread holds 4 to 64 elements."""
    per_thread = rng.choice(_BEST_ELEMENTS_PER_THREAD)
    ideal = tile // (32 * per_thread)
    return min(WARPS, key=lambda w: (abs(w - ideal), w))


def _other(allowed: Sequence[int], current: int | None, rng: random.Random) -> int:
    return rng.choice([value for value in allowed if value != current])

"""A small workload for files that name none: the sizes reduced until the interpreter can run them.

The rule: the largest integer size (with all that equal it) is divided by its smallest prime factor, again and again,
until the product of the sizes above 16 is at most 2^18. So powers of two stay powers of two, equal sizes stay equal,
and no size falls below 16. Sizes that no factor up to 7 divides stay, unless they are above 2^18: then a size of the
same remainder takes their place. Last, where one size divided another, it still does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Number = int | float

MAX_PRODUCT = 1 << 18  # elements, if every size is a dimension of one tensor: a second or so in the interpreter
SMALLEST = 16
_FACTORS = (2, 3, 5, 7)
_STUBBORN = 1024


def shrink(sizes: Mapping[str, Number]) -> dict[str, Number]:
    """The sizes of a small workload. Floats and integers up to 16 stay as they are."""
    large = [v for v in sizes.values() if isinstance(v, int) and v > SMALLEST]
    reduced = {v: v for v in large}
    divisors = sorted({v for v in sizes.values() if isinstance(v, int) and v > 1})
    while math.prod(map((fitting := _divisible(reduced, divisors)).__getitem__, large)) > MAX_PRODUCT:
        largest = next((v for v in sorted(reduced, key=lambda v: -reduced[v]) if _smaller(reduced[v])), None)
        if largest is None:
            break
        reduced[largest] = _smaller(reduced[largest])
    return {name: fitting.get(value, value) if isinstance(value, int) else value for name, value in sizes.items()}


def _smaller(value: int) -> int:
    """The next smaller value, or 0 when there is none."""
    for factor in _FACTORS:
        if value % factor == 0 and value // factor >= SMALLEST:
            return value // factor
    return _STUBBORN + value % _STUBBORN if value > MAX_PRODUCT else 0


def _divisible(reduced: Mapping[int, int], divisors: Sequence[int]) -> dict[int, int]:
    """The reduced sizes, raised where needed: what divided a size divides it again."""
    fitting: dict[int, int] = {}
    for value in sorted(reduced):
        smalls = [fitting.get(d, d) for d in divisors if d < value and value % d == 0]
        fitting[value] = math.lcm(reduced[value], *smalls)
    return fitting

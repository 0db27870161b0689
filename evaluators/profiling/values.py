"""Cells of a report as numbers in the units of our records."""

from __future__ import annotations

import math
import re
from enum import StrEnum

MAX_PCT = 200.0  # counters that are read in different passes disagree by some percent; twice the peak is no reading
MAX_VALUE = 1e18
_PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")

_TIME_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_TIME_US |= {"nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3, "second": 1e6}
_BYTES = {"byte": 1.0, "b": 1.0}
_BYTES |= {f"{prefix}byte": 1e3**power for power, prefix in enumerate("kmgt", 1)}
_BYTES |= {f"{prefix}ibyte": 1024.0**power for power, prefix in enumerate("kmgt", 1)}
_PER_SECOND = ("/s", "/second")
_PER_LAUNCH = ("/block", "/thread")


class Quantity(StrEnum):
    """What a metric measures, and so the unit of its field."""

    TIME = "time"  # microseconds
    BYTES = "bytes"
    RATE = "rate"  # GB/s
    PERCENT = "percent"  # in [0, 100]
    FRACTION = "fraction"  # in [0, 1], from a percentage
    COUNT = "count"
    RATIO = "ratio"


def parse_number(text: str) -> float | None:
    """The number in a cell, thousands separators allowed; None for "n/a", "no data", NaN, infinity and all else."""
    text = text.strip()
    if not (_PLAIN.fullmatch(text) or _GROUPED.fullmatch(text)):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) and abs(value) <= MAX_VALUE else None


def parse_value(text: str, unit: str, quantity: Quantity) -> float | None:
    """The value of a cell in the unit of its quantity.

    None where there is no such value: no number, a negative one, or a unit of another quantity.
    """
    value = parse_number(text)
    scale = _scale(unit.strip().lower(), quantity)
    if value is None or value < 0 or scale is None:
        return None
    value *= scale
    if quantity in (Quantity.PERCENT, Quantity.FRACTION):
        if value > MAX_PCT:
            return None
        value = min(value, 100.0)
        return value / 100 if quantity is Quantity.FRACTION else value
    return value


def _scale(unit: str, quantity: Quantity) -> float | None:
    """What a value of this unit is multiplied with; None for a unit of another quantity."""
    match quantity:
        case Quantity.TIME:
            return _TIME_US.get(unit)
        case Quantity.BYTES:
            return _BYTES.get(_without_suffix(unit, _PER_LAUNCH))
        case Quantity.RATE:
            scale = _BYTES.get(_without_suffix(unit, _PER_SECOND)) if unit.endswith(_PER_SECOND) else None
            return None if scale is None else scale * 1e-9
        case Quantity.PERCENT | Quantity.FRACTION:
            return 1.0 if unit == "%" else None
        case _:
            return None if unit in ("%", *_TIME_US, *_BYTES) else 1.0


def _without_suffix(unit: str, suffixes: tuple[str, ...]) -> str:
    return next((unit.removesuffix(suffix) for suffix in suffixes if unit.endswith(suffix)), unit)

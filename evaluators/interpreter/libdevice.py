"""CUDA's libdevice computed by numpy, in float64 and rounded once to the type of the result.

Names and meanings as in NVIDIA's libdevice user's guide; a symbol there is `__nv_` and the name, with an `f` at its
end for float32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter

Function = Callable[..., Any]


def _each(function: Callable[..., float]) -> Function:
    """A function of Python floats over arrays; what it cannot compute is NaN."""

    def compute(*values: float) -> float:
        try:
            return function(*values)
        except (ValueError, OverflowError):
            return math.nan

    return np.vectorize(compute, otypes=[np.float64])


def _normcdf(x: Any) -> Any:
    return 0.5 * _each(math.erfc)(-x / math.sqrt(2))


FUNCTIONS: dict[str, Function] = {
    # powers and logarithms
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "pow": np.power,
    "powi": np.power,
    "hypot": np.hypot,
    # angles
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    # probability
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "lgamma": _each(math.lgamma),
    "tgamma": _each(math.gamma),
    "normcdf": _normcdf,
    # rounding and comparison
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "abs": np.abs,
    "fabs": np.abs,
    "fmod": np.fmod,
    "remainder": _each(math.remainder),
    "copysign": np.copysign,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "max": np.maximum,
    "min": np.minimum,
    "fma": lambda x, y, z: x * y + z,
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isnand": np.isnan,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    # the fast ones are the exact ones here
    "fast_exp": np.exp,
    "fast_exp10": lambda x: np.power(10.0, x),
    "fast_log": np.log,
    "fast_log2": np.log2,
    "fast_log10": np.log10,
    "fast_sin": np.sin,
    "fast_cos": np.cos,
    "fast_tan": np.tan,
    "fast_pow": np.power,
    "fast_tanh": np.tanh,
    "fast_fdivide": np.divide,
}

# `fadd_rn`, `ddiv_rn`: rounded to nearest even, as numpy does; the other directions it has not
_NEAREST: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fma": FUNCTIONS["fma"],
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": FUNCTIONS["rsqrt"],
}
_NEAREST_SYMBOL = re.compile(r"[fd]?(add|sub|mul|div|fma|rcp|sqrt|rsqrt)f?_rn")

# `float2int_rz`: to an integer in each direction, to a float to nearest only
_TO_INTEGER: dict[str, Function] = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}
_CONVERSION_SYMBOL = re.compile(r"\w+2(int|uint|ll|ull|float|double)_(r[ndzu])")

_BITS = {"float_as_int": np.int32, "float_as_uint": np.uint32, "int_as_float": np.float32, "uint_as_float": np.float32}


def compute(
    _builder: Any, _library: str, _path: str, symbol: str, arguments: list[Any], result_type: Any, _is_pure: bool
) -> Any:
    """In place of the interpreter's `create_extern_elementwise`, which has none.

    Raises:
        NotImplementedError: a function that is not in the table.
    """
    data = [argument.data for argument in arguments]
    dtype = interpreter._get_np_dtype(result_type)
    name = symbol.removeprefix("__nv_")
    if name in _BITS:
        return interpreter.TensorHandle(data[0].view(dtype), result_type.scalar)
    function = _function_of(name)
    if function is None:
        raise NotImplementedError(f"the interpreter has no {symbol} of libdevice")
    with np.errstate(all="ignore"):
        result = function(*(_wide(values) for values in data))
    return interpreter.TensorHandle(np.asarray(result).astype(dtype), result_type.scalar)


def _function_of(name: str) -> Function | None:
    if nearest := _NEAREST_SYMBOL.fullmatch(name):
        return _NEAREST[nearest[1]]
    if conversion := _CONVERSION_SYMBOL.fullmatch(name):
        target, direction = conversion.groups()
        if target in ("float", "double"):
            return np.asarray if direction == "rn" else None
        return _TO_INTEGER[direction]
    return FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))


def _wide(values: Any) -> Any:
    return values.astype(np.float64) if values.dtype.kind == "f" else values

"""Which calls of a kernel answer for each element by that element alone."""

from __future__ import annotations

import re
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, descendants

_ELEMENTWISE = re.compile(
    "abs|add|cast|ceil|clamp|cos|div_rn|erf|exp|exp2|fdiv|floor|fma|full_like|log|log2|max|maximum|min|minimum|mul|"
    "mulhi|rsqrt|sigmoid|sin|sqrt|sqrt_rn|sub|umulhi|where|zeros_like"
)
_METHODS = re.compile(r"to|is_\w+")
_MAX_DEPTH = 8  # of functions that call others


def is_elementwise(program: Program, call: cst.Call, depth: int = 0) -> bool:
    """Whether a call answers for each element by that element alone."""
    if isinstance(call.func, cst.Attribute) and _METHODS.fullmatch(call.func.attr.value):
        return True
    if isinstance(call.func, cst.Name) and call.func.value in program.kernels:
        return depth < _MAX_DEPTH and _is_elementwise_function(program, program.kernels[call.func.value], depth + 1)
    name = program.qualified(call.func)
    if name.startswith("triton.language.extra."):
        return ".libdevice." in name
    inside = name.removeprefix("triton.language.").removeprefix("math.")
    joins_lanes = name in ("triton.language.max", "triton.language.min")
    known = name.startswith("triton.language.") and _ELEMENTWISE.fullmatch(inside) is not None
    return (known and not joins_lanes) or name in ("float", "int")


def _is_elementwise_function(program: Program, function: Scope, depth: int) -> bool:
    inner = list(descendants(cast(cst.FunctionDef, function.node).body))
    calls = [n for n in inner if isinstance(n, cst.Call)]
    parts = any(isinstance(n, cst.Subscript) for n in inner)
    return not parts and all(is_elementwise(program, c, depth) or _makes_constant(program, c) for c in calls)


def _makes_constant(program: Program, call: cst.Call) -> bool:
    """A constant of one element."""
    shape = argument(call, 0, "shape")
    single = isinstance(shape, cst.Tuple | cst.List) and [program.text(e.value) for e in shape.elements] == ["1"]
    return program.device_call(call) in ("full", "zeros") and (single or isinstance(shape, cst.Attribute))

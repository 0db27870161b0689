"""Whether a Triton function follows the type of its inputs: given float64, does it compute in float64 throughout?

A kernel fixes types in its text: an accumulator of float32, a cast, a tensor that is allocated as one, be it by
default. Fed with float64 such a kernel does not compile, or answers in float64 what it computed in float32, and a
program would be held against rounding errors. So only a function that names no floating type is its own reference in
float64.
"""

from __future__ import annotations

import ast

from evaluators.gates.reachable import reachable_statements

_TYPES = frozenset({"bfloat16", "bf16", "float16", "float32", "fp16", "fp32", "half", "tf32"})
_METHODS = frozenset({"float"})  # x.float(); the name alone is Python's own
_ALLOCATIONS = frozenset({"empty", "empty_strided", "full", "ones", "zeros"})  # of float32 unless told otherwise
_NARROWEST = ("float8", "fp8", "float4", "fp4")


def follows_inputs(source: str, entry_point: str = "kernel_function") -> bool:
    """Whether nothing that the entry point leads to names a floating type."""
    statements = reachable_statements(ast.parse(source), entry_point)
    return not any(_names_type(node) for statement in statements for node in ast.walk(statement))


def _names_type(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), keywords=given) if (
            name in _ALLOCATIONS
        ):
            return all(keyword.arg != "dtype" for keyword in given)
        case ast.Attribute(attr=name):
            return name in _METHODS or _is_type(name)
        case ast.Name(id=name) | ast.Constant(value=str(name)):
            return _is_type(name)
    return False


def _is_type(name: str) -> bool:
    return name in _TYPES or name.startswith(_NARROWEST)

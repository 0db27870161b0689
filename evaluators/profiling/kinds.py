"""What a kernel does, as far as its source says it."""

from __future__ import annotations

import ast
from functools import lru_cache

from db.profile import KernelKind

_PRODUCTS = frozenset({"dot", "dot_scaled"})
_SCANS = frozenset({"cumsum", "cumprod", "associative_scan"})
_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum", "reduce_or"})
_LOADS = frozenset({"load", "load_tensor_descriptor"})
_STORES = frozenset({"store", "store_tensor_descriptor", "atomic_add", "atomic_max", "atomic_min"})

Functions = dict[str, ast.FunctionDef]


@lru_cache(maxsize=256)
def kernel_kind(source: str, kernel: str = "") -> KernelKind:
    """The kind of a kernel of this source; of the first one where `kernel` is none of them.

    Products are told by `tl.dot`, scans by `tl.cumsum` and the like. A loop that loads and does not store walks along
    a row or column; reductions without one take a whole row at once.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return KernelKind.OTHER
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    kernels = [name for name, node in functions.items() if _is_jitted(node)]
    name = kernel if kernel in kernels else _first_launched(module, kernels)
    return _kind(_with_called(name, functions)) if name else KernelKind.OTHER


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _first_launched(module: ast.Module, kernels: list[str]) -> str:
    """The first kernel in the source that is launched (`kernel[grid](...)`), else the first at all."""
    launched = [
        node.value.id
        for node in ast.walk(module)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    ]
    return next((name for name in kernels if name in launched), kernels[0] if kernels else "")


def _with_called(name: str, functions: Functions) -> list[ast.FunctionDef]:
    """A function and those of its source that it calls, directly or not."""
    found: dict[str, ast.FunctionDef] = {}
    waiting = [name]
    while waiting:
        function = functions.get(waiting.pop())
        if function is not None and function.name not in found:
            found[function.name] = function
            waiting += [call.func.id for call in _calls(function) if isinstance(call.func, ast.Name)]
    return list(found.values())


def _kind(functions: list[ast.FunctionDef]) -> KernelKind:
    called = {name for function in functions for name in _operations(function)}
    walks = any(_walks(node) for function in functions for node in ast.walk(function))
    if called & _PRODUCTS:
        return KernelKind.MATMUL
    if called & _SCANS:
        return KernelKind.SCAN
    if walks:
        return KernelKind.REDUCTION
    return KernelKind.ROW if called & _REDUCTIONS else KernelKind.ELEMENTWISE


def _walks(node: ast.AST) -> bool:
    if not isinstance(node, ast.For | ast.While):
        return False
    inside = _operations(node)
    return bool(inside & _LOADS) and not inside & _STORES


def _operations(node: ast.AST) -> set[str]:
    """Names behind the last dot of every call: `tl.sum(x)` and `x.sum()` are both "sum"."""
    return {call.func.attr for call in _calls(node) if isinstance(call.func, ast.Attribute)}


def _calls(node: ast.AST) -> list[ast.Call]:
    return [found for found in ast.walk(node) if isinstance(found, ast.Call)]

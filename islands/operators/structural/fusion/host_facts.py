"""What host code says of its own: numbers that it writes, the tensors that names may stand for, how often a name
occurs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, descendants, integer, names_in
from islands.operators.structural.grids import grid_components
from islands.operators.structural.names import bindings

_MAX_DEPTH = 12
_ALLOCATIONS = tuple(f"torch.{n}" for n in ("empty", "empty_strided", "empty_like", "zeros", "zeros_like"))
_ELEMENTS = {
    **{n: n for n in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")},
    "bool": "int1",
}
_OPERATIONS: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.Add: lambda a, b: a + b,
    cst.Subtract: lambda a, b: a - b,
    cst.Multiply: lambda a, b: a * b,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "triton.cdiv": lambda a, b: -(-a // b),
    "triton.next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
}


def host_number(program: Program, scope: Scope, node: cst.CSTNode | None, depth: int = 0) -> int | None:
    """The value of an integer of host code that its literals and names bound once show; else None."""
    value = integer(node)
    if value is not None or node is None or depth > _MAX_DEPTH:
        return value
    if isinstance(node, cst.Name):
        found = _only_binding(program, scope, node.value)
        return None if found is None else host_number(program, scope, found, depth + 1)
    if isinstance(node, cst.BinaryOperation) and type(node.operator) in _OPERATIONS:
        sides = [host_number(program, scope, side, depth + 1) for side in (node.left, node.right)]
        return None if None in sides else _OPERATIONS[type(node.operator)](*cast(list[int], sides))
    if isinstance(node, cst.Call):
        function = _FUNCTIONS.get(program.qualified(node.func))
        given = [host_number(program, scope, a.value, depth + 1) for a in node.args]
        plain = all(a.keyword is None and not a.star for a in node.args)
        n_wanted = 2 if program.qualified(node.func) == "triton.cdiv" else 1
        known = [n for n in given if n is not None and n > 0]
        return function(*known) if function and plain and len(known) == len(given) == n_wanted else None
    return None


def _only_binding(program: Program, scope: Scope, name: str) -> cst.BaseExpression | None:
    """What a name is bound to, where that happens once, in the function or else in the module."""
    if scope.parameter(name) is not None:
        return None
    for place in (scope, program.root):
        found = bindings(program, place).get(name, [])
        if found:
            return found[0].value if len(found) == 1 and not isinstance(found[0].statement, cst.AugAssign) else None
    return None


def grid_of(program: Program, launch: Launch) -> tuple[int, ...] | None:
    """How many programs a launch has along each axis, or None where host code does not show it."""
    texts = grid_components(program, launch)
    sizes = [host_number(program, launch.scope, cst.parse_expression(f"({text})")) for text in texts or []]
    return None if not sizes or None in sizes else tuple(cast(list[int], sizes))


def is_allocation(program: Program, node: cst.CSTNode | None) -> bool:
    """Whether an expression is a new tensor, of zeros or of anything."""
    return isinstance(node, cst.Call) and program.qualified(node.func) in _ALLOCATIONS


def allocation_of(program: Program, scope: Scope, name: str) -> cst.Assign | None:
    """The statement that binds a name to a new tensor, where nothing else binds it."""
    found = bindings(program, scope).get(name, [])
    if len(found) != 1 or scope.parameter(name) is not None or not is_allocation(program, found[0].value):
        return None
    statement = found[0].statement
    return statement if isinstance(statement, cst.Assign) and len(statement.targets) == 1 else None


def element_type(program: Program, allocation: cst.Assign) -> str | None:
    """What Triton calls the type of the elements of a new tensor ("float32"); None where the call does not say it."""
    call = cast(cst.Call, allocation.value)
    named = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "dtype"]
    text = program.qualified(named[0]) if named else ""
    return _ELEMENTS.get(text.removeprefix("torch.")) if text.startswith("torch.") else None


def roots_of(program: Program, scope: Scope, node: cst.CSTNode) -> set[str]:
    """The names of new tensors, parameters and others whose memory an expression may stand for."""
    found: set[str] = set()
    waiting, seen = names_in(node), set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        if name in program.aliases:
            continue
        sources = _sources(program, scope, name)
        found |= {name} if sources is None else set()
        waiting |= (sources or set()) - seen
    return found


def _sources(program: Program, scope: Scope, name: str) -> set[str] | None:
    """The names that a name was computed from; None for what has memory of its own, or comes from elsewhere."""
    if allocation_of(program, scope, name) is not None:
        return None
    found = bindings(program, scope).get(name, [])
    if not found:
        return None
    own = {name} if scope.parameter(name) is not None else set()
    return {source for b in found for source in b.sources if not is_allocation(program, b.value)} - own or None


def occurrences(program: Program, node: cst.CSTNode, name: str) -> list[cst.Name]:
    """Every place in a piece of code where a name is read or bound, in functions inside it too."""

    def compute() -> dict[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = {}
        for inner in descendants(node):
            if isinstance(inner, cst.Name):
                found.setdefault(inner.value, []).append(inner)
        return found

    return program.derived(("occurrences", id(node)), compute).get(name, [])

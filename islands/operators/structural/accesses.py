"""Loads and stores of a kernel: which tensor they touch, and in which walk over it."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument
from islands.operators.structural.names import bindings

_MAX_DEPTH = 16


class Access(NamedTuple):
    """One `tl.load` or `tl.store`."""

    call: cst.Call
    is_load: bool
    tensor: str  # the kernel parameter that the pointer comes from; empty where that is not plain


def accesses_of(program: Program, kernel: Scope) -> list[Access]:
    """The loads and stores of a kernel, in order of the text."""

    def compute() -> list[Access]:
        calls = program.device_calls(kernel, "load", "store")
        return [Access(c, program.device_call(c) == "load", _tensor_of(program, kernel, c)) for c in calls]

    return program.derived(("accesses", id(kernel)), compute)


def _tensor_of(program: Program, kernel: Scope, call: cst.Call) -> str:
    """The parameter at the left end of a sum of a pointer and offsets, followed through local names."""
    node: cst.CSTNode | None = argument(call, 0, "pointer")
    for _ in range(_MAX_DEPTH):
        while isinstance(node, cst.BinaryOperation):
            node = node.left
        if not isinstance(node, cst.Name):
            return ""
        if kernel.parameter(node.value) is not None:
            return node.value
        local = bindings(program, kernel).get(node.value, [])
        node = next((b.value for b in local if b.value is not None), None)
    return ""

"""Tensors that one launch hands to the next, and what host code shows of the two: their order, what else they share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, argument, descendants, names_in
from islands.operators.structural.fusion.host_facts import (
    allocation_of,
    element_type,
    host_number,
    is_allocation,
    occurrences,
    roots_of,
)
from islands.operators.structural.grids import is_plain_kernel
from islands.operators.structural.launches import is_statement
from islands.operators.structural.names import bindings

_HOST_CALLS = ("triton.cdiv", "triton.next_power_of_2")
_VIEWS = ("as_strided", "view")
_N_PLACES = 3  # where a tensor occurs that is made, written and read


class Handed(NamedTuple):
    """A tensor that goes from one launch to the next, and what is known of it."""

    name: str
    element: str  # "float32"
    allocation: cst.Assign
    is_used_later: bool  # after both launches
    is_mentioned: bool  # anywhere else


def neighbours(program: Program) -> Iterator[tuple[Launch, Launch]]:
    """Launches in a row of different plain kernels, in order of the text."""
    for scope in dict.fromkeys(launch.scope for launch in program.launches):
        launches = [x for x in program.launches if x.scope is scope and _stands_in(program, x, scope)]
        for first, second in pairwise(launches):
            if _are_plain(first, second) and _are_neighbours(program, first, second):
                yield first, second


def handed_tensors(program: Program, first: Launch, second: Launch) -> list[Handed]:
    """The tensors that the first launch writes and the second reads; none unless all of them are new, and whatever
    else the launches share is only read."""
    passed = {program.text(arg.value) for arg in second.arguments.values()}
    names = [name for name in _written(program, first) if name in passed]
    found = [_handed(program, first, second, name) for name in names]
    tensors = [t for t in found if t is not None]
    return tensors if len(tensors) == len(found) and _keeps_apart(program, first, second, set(names)) else []


def parameter_of(program: Program, launch: Launch, name: str) -> str | None:
    """The parameter that gets a tensor, where the launch has the tensor once."""
    found = [p for p, arg in launch.arguments.items() if program.text(arg.value) == name]
    return found[0] if len(found) == 1 and len(occurrences(program, launch.call, name)) == 1 else None


def is_only_loaded(program: Program, kernel: Scope, parameter: str) -> bool:
    """Whether a kernel does nothing with a parameter but load from it."""

    def compute() -> set[int]:
        addresses = [argument(c, 0, "pointer") for c in program.device_calls(kernel, "load")]
        return {id(n) for at in addresses if at is not None for n in descendants(at)}

    inside = program.derived(("loaded", id(kernel)), compute)
    return all(id(n) in inside for n in body_occurrences(program, kernel, parameter))


def body_occurrences(program: Program, kernel: Scope, name: str) -> list[cst.Name]:
    """Every place of a kernel's body where a name occurs."""
    return occurrences(program, cast(cst.FunctionDef, kernel.node).body, name)


def _stands_in(program: Program, launch: Launch, scope: Scope) -> bool:
    """Whether a launch is a line of the function's own block."""
    line = program.parents.get(program.parents[launch.call])
    return is_statement(program, launch) and program.parents.get(cast(cst.CSTNode, line)) is _body(scope)


def _body(scope: Scope) -> cst.CSTNode:
    return cast(cst.CSTNode, getattr(scope.node, "body", scope.node))


def _are_plain(first: Launch, second: Launch) -> bool:
    kernels = [x.kernel for x in (first, second)]
    stars = any(a.star for x in (first, second) for a in x.call.args)
    return kernels[0] is not kernels[1] and not stars and all(k is not None and is_plain_kernel(k) for k in kernels)


def _are_neighbours(program: Program, first: Launch, second: Launch) -> bool:
    """Whether host code up to the second launch is assignments and launches alone, and those between the two launches
    may as well stand before both."""
    starts = [program.span(x.call).start for x in (first, second)]
    needed = names_in(first.call)
    for line in cast(cst.IndentedBlock, _body(first.scope)).body:
        at = program.span(line).start
        if at >= starts[1]:
            return True
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        if not (_is_assignment(small) or _is_launch_or_text(program, small)):
            return False
        if at > starts[0] and not (_is_assignment(small) and _may_move(program, small, needed)):
            return False
    return True


def _is_assignment(small: cst.CSTNode | None) -> bool:
    return isinstance(small, cst.Assign) and all(isinstance(t.target, cst.Name) for t in small.targets)


def _is_launch_or_text(program: Program, small: cst.CSTNode | None) -> bool:
    value = small.value if isinstance(small, cst.Expr) else None
    return isinstance(value, cst.SimpleString) or any(value is x.call for x in program.launches)


def _may_move(program: Program, small: cst.CSTNode | None, needed: set[str]) -> bool:
    """Whether an assignment reads no contents of tensors and binds nothing that the first launch reads."""
    assignment = cast(cst.Assign, small)
    bound = {n for t in assignment.targets for n in names_in(t.target)}
    calls = [n for n in descendants(assignment.value) if isinstance(n, cst.Call)]
    views = [c.func.attr.value if isinstance(c.func, cst.Attribute) else "" for c in calls]
    known = [is_allocation(program, c) or program.qualified(c.func) in _HOST_CALLS for c in calls]
    return not bound & needed and all(k or v in _VIEWS for k, v in zip(known, views, strict=True))


def _written(program: Program, launch: Launch) -> list[str]:
    """What a launch passes for parameters that its kernel does more with than load from them, sizes left out."""
    kernel = cast(Scope, launch.kernel)
    return [
        program.text(launch.arguments[p.name].value)
        for p in kernel.parameters
        if p.name in launch.arguments and not p.is_constexpr and not is_only_loaded(program, kernel, p.name)
        if host_number(program, launch.scope, launch.arguments[p.name].value) is None
    ]


def _handed(program: Program, first: Launch, second: Launch, name: str) -> Handed | None:
    """A new tensor that both launches get once, and that nothing else stands for."""
    scope = first.scope
    allocation = allocation_of(program, scope, name)
    element = None if allocation is None else element_type(program, allocation)
    parameters = [parameter_of(program, x, name) for x in (first, second)]
    if allocation is None or element is None or None in parameters:
        return None
    end = program.span(second.call).end
    places = [program.span(n).start for n in occurrences(program, scope.node, name)]
    aliases = [
        other
        for other, group in bindings(program, scope).items()
        if other != name and any(program.span(b.statement).start < end for b in group)
        if name in roots_of(program, scope, cst.Name(other))
    ]
    if aliases or any("." in other for other in bindings(program, scope)):
        return None
    return Handed(name, element, allocation, any(at >= end for at in places), len(places) > _N_PLACES)


def _keeps_apart(program: Program, first: Launch, second: Launch, handed: set[str]) -> bool:
    """Whether nothing else that one of the launches writes is read or written by the other, so that the order of their
    elements does not matter."""
    scope = first.scope
    read, written = _roots(program, first, handed)
    read_later, written_later = _roots(program, second, handed)
    new = all(allocation_of(program, scope, root) is not None for root in written | written_later)
    return new and not written & (read_later | written_later) and not written_later & (read | read_later)


def _roots(program: Program, launch: Launch, without: set[str]) -> tuple[set[str], set[str]]:
    """The memory that a launch may read, and the memory that it may write."""
    texts = set(_written(program, launch)) - without
    read: set[str] = set()
    written: set[str] = set()
    for arg in launch.arguments.values():
        text = program.text(arg.value)
        roots = roots_of(program, launch.scope, arg.value) if text not in without else set()
        if text in texts:
            written |= roots
        else:
            read |= roots
    return read, written

"""Pairs of launches of which the second reads, element by element, a tensor that the first writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, argument, descendants, names_in
from islands.operators.structural.grids import is_plain_kernel
from islands.operators.structural.host_facts import (
    allocation_of,
    element_type,
    grid_of,
    is_allocation,
    occurrences,
    roots_of,
)
from islands.operators.structural.kernel_trace import Trace, TracedAccess
from islands.operators.structural.lane_indices import Bounds, Index, Programs, Variable, digits_of
from islands.operators.structural.launches import is_statement
from islands.operators.structural.names import bindings
from islands.operators.structural.numberings import Correspondence, correspondence, pieces_of, starts_at_zero

_HOST_CALLS = ("triton.cdiv", "triton.next_power_of_2")
_VIEWS = ("as_strided", "view")


class Handed(NamedTuple):
    """A tensor that goes from one launch to the next, and what is known of it."""

    name: str
    element: str  # "float32"
    allocation: cst.Assign
    is_used_later: bool  # after both launches
    is_mentioned: bool  # anywhere else


class LaunchPair(NamedTuple):
    """A store of the first launch and a load of the second with the same elements, and how their digits correspond."""

    first: Launch
    second: Launch
    tensor: Handed
    store: TracedAccess
    load: TracedAccess
    extents: Mapping[Variable, int]  # of the first kernel's variables
    masked: tuple[Variable, ...]  # by the store
    before: Trace  # of the first kernel
    trace: Trace  # of the second kernel
    element: Variable  # of the second kernel
    n_elements: int
    digits: Correspondence  # of the second kernel to the first


def launch_pairs(program: Program) -> list[LaunchPair]:
    """The pairs of a program, in order of the text."""
    found: list[LaunchPair] = []
    for scope in dict.fromkeys(launch.scope for launch in program.launches):
        launches = [x for x in program.launches if x.scope is scope and _stands_in(program, x, scope)]
        for first, second in pairwise(launches):
            if _are_plain(first, second) and _are_neighbours(program, first, second):
                found += _pairs(program, first, second)
    return found


def parameter_of(program: Program, launch: Launch, name: str) -> str | None:
    """The parameter that gets a tensor, where the launch has the tensor once."""
    found = [p for p, arg in launch.arguments.items() if program.text(arg.value) == name]
    return found[0] if len(found) == 1 and len(occurrences(launch.call, name)) == 1 else None


def is_only_loaded(program: Program, kernel: Scope, parameter: str) -> bool:
    """Whether a kernel does nothing with a parameter but load from it."""
    loads = [argument(c, 0, "pointer") for c in program.device_calls(kernel, "load")]
    inside = {id(n) for at in loads if at is not None for n in descendants(at)}
    return all(id(n) in inside for n in body_occurrences(kernel, parameter))


def body_occurrences(kernel: Scope, name: str) -> list[cst.Name]:
    """Every place of a kernel's body where a name occurs."""
    return occurrences(cast(cst.FunctionDef, kernel.node).body, name)


# ----------------------------------------------------------------------------------------------------------- host code


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


def _handed(program: Program, first: Launch, second: Launch, name: str) -> Handed | None:
    """A new tensor that both launches get once, and that nothing else stands for."""
    scope = first.scope
    allocation = allocation_of(program, scope, name)
    element = None if allocation is None else element_type(program, allocation)
    parameters = [parameter_of(program, x, name) for x in (first, second)]
    if allocation is None or element is None or None in parameters:
        return None
    end = program.span(second.call).end
    places = [program.span(n).start for n in occurrences(scope.node, name)]
    aliases = [
        other
        for other, group in bindings(program, scope).items()
        if other != name and any(program.span(b.statement).start < end for b in group)
        if name in roots_of(program, scope, cst.Name(other))
    ]
    if aliases or any("." in other for other in bindings(program, scope)):
        return None
    return Handed(name, element, allocation, any(at >= end for at in places), len(places) > 3)


def _keeps_apart(program: Program, first: Launch, second: Launch, tensor: str) -> bool:
    """Whether nothing else that one of the launches writes is read or written by the other, so that the order of their
    elements does not matter."""
    scope = first.scope
    read, written = _roots(program, first, {tensor})
    read_later, written_later = _roots(program, second, {tensor})
    if tensor in read | written | read_later | written_later:
        return False
    new = all(allocation_of(program, scope, root) is not None for root in written | written_later)
    return new and not written & (read_later | written_later) and not written_later & (read | read_later)


def _roots(program: Program, launch: Launch, without: set[str]) -> tuple[set[str], set[str]]:
    """The memory that a launch only loads from, and the memory that it may write."""
    read: set[str] = set()
    written: set[str] = set()
    kernel = cast(Scope, launch.kernel)
    for parameter in kernel.parameters:
        arg = launch.arguments.get(parameter.name)
        if arg is None or program.text(arg.value) in without:
            continue
        roots = roots_of(program, launch.scope, arg.value)
        if parameter.is_constexpr or is_only_loaded(program, kernel, parameter.name):
            read |= roots
        else:
            written |= roots
    return read, written


# ------------------------------------------------------------------------------------------------------------- kernels


def _pairs(program: Program, first: Launch, second: Launch) -> Iterator[LaunchPair]:
    texts = [{program.text(a.value) for a in x.arguments.values()} for x in (first, second)]
    names = sorted(texts[0] & texts[1])
    tensors = [t for name in names if (t := _handed(program, first, second, name)) is not None]
    if not tensors:
        return
    traces = Trace(program, first), Trace(program, second)
    for tensor in tensors:
        if _keeps_apart(program, first, second, tensor.name):
            pair = _pair(program, first, second, tensor, traces)
            if pair is not None:
                yield pair


def _pair(
    program: Program, first: Launch, second: Launch, tensor: Handed, traces: tuple[Trace, Trace]
) -> LaunchPair | None:
    store = _only_access(program, first, traces[0], tensor.name, is_load=False)
    load = _only_access(program, second, traces[1], tensor.name, is_load=True)
    grids = [grid_of(program, x) for x in (first, second)]
    if store is None or load is None or store.pointer is None or load.pointer is None:
        return None
    if grids[0] is None or grids[1] is None or not _is_statement(program, store.call):
        return None
    extents = _extents(traces[0], store, grids[0])
    later = _extents(traces[1], load, grids[1])
    if extents is None or later is None or len(later) != 1 or len(grids[1]) != 1:
        return None
    others = [v for _, v in traces[1].values if isinstance(v, Index)]
    others += [a.pointer.offset for a in traces[1].accesses if a.pointer is not None]
    pieces = pieces_of(store.pointer.offset, extents)
    pieces_later = pieces_of(load.pointer.offset, later, others)
    if not pieces or not pieces_later:
        return None
    starts = starts_at_zero(store.pointer.offset, pieces), starts_at_zero(load.pointer.offset, pieces_later)
    digits = correspondence(pieces_later, pieces)
    if digits is None or not all(starts):
        return None
    element, n_elements = next(iter(later.items()))
    masked = tuple(v for v in extents if v in _masked(traces[0], store))
    return LaunchPair(first, second, tensor, store, load, extents, masked, *traces, element, n_elements, digits)


def _only_access(program: Program, launch: Launch, trace: Trace, tensor: str, is_load: bool) -> TracedAccess | None:
    """The load or store of a tensor, where the kernel does nothing else with it and does that in every program."""
    parameter = parameter_of(program, launch, tensor)
    if parameter is None or len(body_occurrences(trace.kernel, parameter)) != 1:
        return None
    found = [a for a in trace.accesses if a.pointer is not None and a.pointer.parameter == parameter]
    if len(found) != 1 or found[0].is_load != is_load or found[0].is_conditional:
        return None
    return found[0]


def _is_statement(program: Program, call: cst.Call) -> bool:
    """Whether a call is a line of its own."""
    statement = program.parents[call]
    line = program.parents[statement]
    in_block = isinstance(program.parents.get(line), cst.IndentedBlock)
    return isinstance(statement, cst.Expr) and isinstance(line, cst.SimpleStatementLine) and in_block


def _extents(trace: Trace, access: TracedAccess, grid: tuple[int, ...]) -> dict[Variable, int] | None:
    """The variables whose values make each access of a launch just once, with how many values each has."""
    digits = digits_of(access.pointer.offset) if access.pointer is not None else None
    mask = Bounds() if access.mask is None else trace.value(access.mask, access.known)
    if digits is None or not isinstance(mask, Bounds):
        return None
    variables = {d.variable for d in digits} | {v for v, _ in mask.below}
    extents = {v: v.n_values(grid) for v in sorted(variables, key=_order)}
    for variable, bound in mask.below:
        extents[variable] = min(extents[variable], bound)
    return extents if _is_product(list(extents), extents, access, grid) else None


def _order(variable: Variable) -> tuple[int, ...]:
    lanes = variable.lanes
    origin = (0, variable.origin.axis) if isinstance(variable.origin, Programs) else (1, 0)
    return (-lanes.axis if lanes is not None else 1, *origin, variable.block)


def _is_product(
    variables: list[Variable], extents: Mapping[Variable, int], access: TracedAccess, grid: tuple[int, ...]
) -> bool:
    """Whether the variables are independent of each other, and programs, iterations and lanes are all among them."""
    origins = [v.origin for v in variables if v.origin is not None]
    lanes = [v.lanes for v in variables if v.lanes is not None]
    distinct = len(set(origins)) == len(origins) and len({x.axis for x in lanes}) == len(lanes)
    axes = {x.axis for x in origins if isinstance(x, Programs)}
    all_programs = all(n == 1 or axis in axes for axis, n in enumerate(grid))
    all_iterations = set(access.around) <= set(origins)
    full = all(extents[v] > 1 or v.block == 1 for v in variables)
    return distinct and all_programs and all_iterations and full and len({x.rank for x in lanes}) <= 1


def _masked(trace: Trace, access: TracedAccess) -> set[Variable]:
    mask = None if access.mask is None else trace.value(access.mask, access.known)
    return {v for v, _ in mask.below} if isinstance(mask, Bounds) else set()

"""Pairs of launches of which the second reads, element by element, what the first writes, and how the elements of the
two kernels correspond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Launch, Program
from islands.operators.structural.fusion.handovers import (
    Handed,
    body_occurrences,
    handed_tensors,
    neighbours,
    parameter_of,
)
from islands.operators.structural.fusion.host_facts import grid_of
from islands.operators.structural.fusion.kernel_trace import Trace, TracedAccess
from islands.operators.structural.fusion.lane_indices import (
    Bounds,
    Digit,
    Index,
    Pointer,
    Programs,
    Variable,
    digits_of,
    of_atom,
)
from islands.operators.structural.fusion.numberings import Correspondence, correspondence, pieces_of, starts_at_zero


class Handover(NamedTuple):
    """A tensor with the one store of the first kernel to it and the one load of the second from it."""

    tensor: Handed
    parameter: str  # of the first kernel
    store: TracedAccess
    load: TracedAccess


class Numbering(NamedTuple):
    """The elements that a handover is about, in the variables of both kernels."""

    extents: Mapping[Variable, int]  # of the first kernel's variables
    masked: tuple[Variable, ...]  # by the store
    element: Variable  # of the second kernel
    n_elements: int
    digits: Correspondence  # of the second kernel's to the first's

    @property
    def _element(self) -> Index | None:
        """The second kernel's variable in the first's."""
        return self.digits.translated(of_atom(Digit(self.element)))

    def is_same(self, other: Numbering) -> bool:
        """Whether the elements of two handovers are the same, one by one."""
        alike = self[:-1] == other[:-1]
        return alike and self._element is not None and self._element == other._element


class LaunchPair(NamedTuple):
    """Two launches with all that the first hands to the second."""

    first: Launch
    second: Launch
    handovers: tuple[Handover, ...]  # in order of the stores
    numbering: Numbering
    before: Trace  # of the first kernel
    trace: Trace  # of the second kernel

    @property
    def store(self) -> TracedAccess:
        """The last store: behind it, everything that the second kernel needs is there."""
        return self.handovers[-1].store


def launch_pairs(program: Program) -> list[LaunchPair]:
    """The pairs of a program, in order of the text."""
    found = [_pair(program, first, second) for first, second in neighbours(program)]
    return [pair for pair in found if pair is not None]


def _pair(program: Program, first: Launch, second: Launch) -> LaunchPair | None:
    tensors = handed_tensors(program, first, second)
    if not tensors:
        return None
    traces = Trace(program, first), Trace(program, second)
    found = [_handover(program, first, second, tensor, traces) for tensor in tensors]
    handovers = sorted((h for h in found if h), key=lambda h: program.span(h.store.call).start)
    numberings = [_numbering(program, first, second, handover, traces) for handover in handovers]
    known = [n for n in numberings if n is not None]
    blocks = {id(program.parents[program.parents[program.parents[h.store.call]]]) for h in handovers}
    if not len(tensors) == len(handovers) == len(known) or len(blocks) != 1:
        return None
    if not all(n.is_same(known[0]) for n in known):
        return None
    return LaunchPair(first, second, tuple(handovers), known[0], *traces)


def _handover(
    program: Program, first: Launch, second: Launch, tensor: Handed, traces: tuple[Trace, Trace]
) -> Handover | None:
    store = _only_access(program, first, traces[0], tensor.name, is_load=False)
    load = _only_access(program, second, traces[1], tensor.name, is_load=True)
    parameter = parameter_of(program, first, tensor.name)
    if store is None or load is None or parameter is None or not _is_statement(program, store.call):
        return None
    return Handover(tensor, parameter, store, load)


def _numbering(
    program: Program, first: Launch, second: Launch, handover: Handover, traces: tuple[Trace, Trace]
) -> Numbering | None:
    grids = grid_of(program, first), grid_of(program, second)
    if grids[0] is None or grids[1] is None or len(grids[1]) != 1:
        return None
    extents = _extents(traces[0], handover.store, grids[0])
    later = _extents(traces[1], handover.load, grids[1])
    if extents is None or later is None or len(later) != 1:
        return None
    element, n_elements = next(iter(later.items()))
    elided = any(isinstance(a.mask, cst.IfExp) for a in traces[1].accesses)
    offsets = [_offset(a) for a in (handover.store, handover.load)]
    digits = _digits(traces[1], offsets, extents, later)
    if digits is None or (elided and element.n_values(grids[1]) != n_elements):
        return None
    masked = tuple(v for v in extents if v in _masked(traces[0], handover.store))
    return Numbering(extents, masked, element, n_elements, digits)


def _digits(
    trace: Trace, offsets: list[Index], extents: Mapping[Variable, int], later: Mapping[Variable, int]
) -> Correspondence | None:
    """How the digits of a load's offset correspond to those of a store's, fine enough for all that is computed from
    the second kernel's variable."""
    others = [v for _, v in trace.values if isinstance(v, Index)]
    others += [_offset(a) for a in trace.accesses if a.pointer is not None]
    stored, loaded = pieces_of(offsets[0], extents), pieces_of(offsets[1], later, others)
    if not stored or not loaded:
        return None
    from_zero = starts_at_zero(offsets[0], stored) and starts_at_zero(offsets[1], loaded)
    return correspondence(loaded, stored) if from_zero else None


def _offset(access: TracedAccess) -> Index:
    return access.pointer.offset if isinstance(access.pointer, Pointer) else Index(0)


def _only_access(program: Program, launch: Launch, trace: Trace, tensor: str, is_load: bool) -> TracedAccess | None:
    """The load or store of a tensor, where the kernel does nothing else with it and does that in every program."""
    parameter = parameter_of(program, launch, tensor)
    if parameter is None or len(body_occurrences(program, trace.kernel, parameter)) != 1:
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
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return isinstance(statement, cst.Expr) and alone and in_block


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

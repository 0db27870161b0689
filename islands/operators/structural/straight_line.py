"""Kernels without branches that hold a whole row in one tile, as a graph of statements and reductions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, names_in
from islands.operators.structural.parts import children

_REDUCTIONS = ("sum", "max", "min")
_ACROSS_LANES = re.compile(
    "arg(max|min)|cum(sum|prod)|sort|flip|associative_scan|reduce|xor_sum|dot|dot_scaled|reshape|trans|gather|histogram"
    "|topk|split|join|atomic_.*|rand.*"
)


class Reduction(NamedTuple):
    """`tl.sum(operand)` in a statement. `walk` is the number of the loop that can compute it, from 1 on."""

    call: cst.Call
    kind: str
    owner: int  # index of the statement it stands in
    reads: frozenset[int]  # statements that its operand reads
    inner: frozenset[int]  # reductions inside its operand
    walk: int

    @property
    def operand(self) -> cst.BaseExpression:
        return self.call.args[0].value


class Step(NamedTuple):
    """One statement: what it binds, what it reads, and the loop after which all that it reads is there."""

    node: cst.SimpleStatementLine
    name: str  # empty for a call such as a store
    is_tile: bool
    reads: frozenset[int]
    reductions: frozenset[int]
    ready: int


class StraightLine(NamedTuple):
    """The statements of a kernel from the first that makes a tile on."""

    steps: tuple[Step, ...]
    reductions: tuple[Reduction, ...]

    @property
    def stores(self) -> list[int]:
        return [i for i, step in enumerate(self.steps) if step.is_tile and not step.name]

    @property
    def n_walks(self) -> int:
        """How many loops over the row it takes to compute the reductions and then the stores."""
        stored = [1 + self.steps[i].ready for i in self.stores]
        return max([*stored, *(r.walk for r in self.reductions)], default=0)

    def needed(self, roots: Iterable[int]) -> set[int]:
        """The tile statements among some statements and all that they read."""
        found: set[int] = set()
        waiting = list(roots)
        while waiting:
            i = waiting.pop()
            if self.steps[i].is_tile and i not in found:
                found.add(i)
                waiting += self.steps[i].reads
        return found


def straight_line(program: Program, kernel: Scope) -> StraightLine | None:
    """The graph of a kernel, or None where it branches or mixes lanes in other ways than by a reduction."""
    body = cast(cst.FunctionDef, kernel.node).body
    if not isinstance(body, cst.IndentedBlock):
        return None
    makes = [any(program.device_call(c) == "arange" for c in _calls(statement)) for statement in body.body]
    if True not in makes:
        return None
    builder = _Builder(program)
    for statement in body.body[makes.index(True) :]:
        if not builder.add(statement):
            return None
    names = [s.name for s in builder.steps if s.name and not s.is_tile]
    tiles = {s.name for s in builder.steps if s.is_tile}
    before = {n for statement in body.body[: makes.index(True)] for n in names_in(statement)}
    rebound = len(set(names)) < len(names) or tiles & set(names) or set(names) & {p.name for p in kernel.parameters}
    reused = set(names) & before
    return None if rebound or reused else StraightLine(tuple(builder.steps), tuple(builder.reductions))


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps: list[Step] = []
        self.reductions: list[Reduction] = []
        self.latest: dict[str, int] = {}  # name to the statement that bound it last

    def add(self, statement: cst.CSTNode) -> bool:
        """Takes one more statement; False where it does not fit."""
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return False
        small = statement.body[0]
        name, value = _binding(small)
        if value is None or any(self._mixes_lanes(c) for c in _calls(value)):
            return False
        first = len(self.reductions)
        reads, makes_tile = self._read(value, len(self.steps))
        if isinstance(small, cst.AugAssign):
            reads |= {self.latest[name]} if name in self.latest else set()
        own = frozenset(range(first, len(self.reductions)))
        is_tile = makes_tile or any(self.steps[i].is_tile for i in reads)
        ready = max([*(self.steps[i].ready for i in reads), *(self.reductions[r].walk for r in own)], default=0)
        self.steps.append(Step(statement, name, is_tile, frozenset(reads), own, ready))
        if name:
            self.latest[name] = len(self.steps) - 1
        return True

    def _mixes_lanes(self, call: cst.Call) -> bool:
        function = self.program.device_call(call)
        if function in _REDUCTIONS:
            axis = argument(call, 1, "axis")
            return len(call.args) > 2 or (axis is not None and self.program.text(axis) != "0")
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) and not function else ""
        return method in _REDUCTIONS or _ACROSS_LANES.fullmatch(method or function.rpartition(".")[2]) is not None

    def _read(self, node: cst.CSTNode, owner: int) -> tuple[set[int], bool]:
        """The statements that an expression reads outside reductions, and whether it makes a tile by itself."""
        reads: set[int] = set()
        makes_tile = False
        stack = [node]
        while stack:
            item = stack.pop()
            if isinstance(item, cst.Call) and self.program.device_call(item) in _REDUCTIONS:
                self._add_reduction(item, owner)
                continue
            if isinstance(item, cst.Call):
                makes_tile |= self.program.device_call(item) in ("arange", "zeros", "full")
            if isinstance(item, cst.Name):
                reads |= {self.latest[item.value]} if item.value in self.latest else set()
            elif isinstance(item, cst.Attribute | cst.Arg):
                stack.append(item.value)
            else:
                stack.extend(children(item))
        return reads, makes_tile

    def _add_reduction(self, call: cst.Call, owner: int) -> None:
        first = len(self.reductions)
        reads, _ = self._read(call.args[0].value, owner)
        inner = frozenset(range(first, len(self.reductions)))
        ready = max([*(self.steps[i].ready for i in reads), *(self.reductions[r].walk for r in inner)], default=0)
        kind = self.program.device_call(call)
        self.reductions.append(Reduction(call, kind, owner, frozenset(reads), inner, ready + 1))


def _binding(small: cst.CSTNode) -> tuple[str, cst.BaseExpression | None]:
    """What a statement binds ("" for a bare call) and the value; no value where the statement is of another kind."""
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        return small.targets[0].target.value, small.value
    if isinstance(small, cst.AugAssign | cst.AnnAssign) and isinstance(small.target, cst.Name):
        return small.target.value, small.value
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        return "", small.value
    return "", None


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    if isinstance(node, cst.Call):
        yield node
    for child in children(node):
        yield from _calls(child)

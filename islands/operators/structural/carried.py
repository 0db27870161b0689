"""What a loop carries from one iteration to the next, where shares of its iterations can be done apart and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, descendants, names_in
from islands.operators.structural.initial import Initial, initial_value
from islands.operators.structural.kernels import Loop
from islands.operators.structural.names import Binding, bindings
from islands.operators.structural.places import last_character
from islands.operators.structural.recurrences import assignment_of, is_power, operands_of
from islands.operators.structural.row_loops import nearest

_PRODUCTS = ("dot", "dot_scaled")


class Accumulator(NamedTuple):
    """A value that a loop only adds to, or takes the maximum or minimum with. A sum with `factor_index` is rescaled
    whenever the running maximum rises: `total = total * tl.exp(top - new)[:, None] + ...` has the index "[:, None]"."""

    name: str
    kind: str  # "sum", "max", "min"
    initial: Initial
    is_product: bool = False  # of tensor cores
    factor_index: str | None = None


class Advance(NamedTuple):
    """`pointers += step`, with a step that is the same in every iteration."""

    name: str
    step: str


class Carried(NamedTuple):
    """All that a loop carries. `top` is the running maximum of sums that are rescaled, `power` its "tl.exp"."""

    accumulators: tuple[Accumulator, ...]
    advances: tuple[Advance, ...]
    top: str = ""
    power: str = ""


def carried_by(program: Program, kernel: Scope, loop: Loop) -> Carried | None:
    """What a loop carries, or None where that is something whose shares cannot be joined."""
    return program.derived(("carried", id(loop.node)), lambda: _Reader(program, kernel, loop).carried())


def reads_of(program: Program, kernel: Scope, name: str) -> list[cst.Name]:
    """Where a kernel reads a name, in order of the text; the target of `+=` counts."""

    def compute() -> dict[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = {}
        for node in kernel.all(cst.Name):
            if not _is_written_or_label(program, node):
                found.setdefault(node.value, []).append(node)
        return found

    return program.derived(("reads", id(kernel)), compute).get(name, [])


def _is_written_or_label(program: Program, node: cst.Name) -> bool:
    parent: cst.CSTNode = program.parents[node]
    child: cst.CSTNode = node
    if isinstance(parent, cst.Attribute):
        return parent.attr is node
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    while isinstance(parent, cst.Element | cst.Tuple | cst.List):
        child, parent = parent, program.parents[parent]
    is_target = isinstance(parent, cst.For | cst.AnnAssign | cst.NamedExpr) and parent.target is child
    return is_target or isinstance(parent, cst.AssignTarget | cst.Param)


class _Running(NamedTuple):
    """`new = tl.maximum(top, ...)` with `top = new`, and the names of `tl.exp(top - new)`."""

    top: str
    new: str
    power: str
    factors: frozenset[str]


class _Reader:
    """Reads one loop."""

    def __init__(self, program: Program, kernel: Scope, loop: Loop) -> None:
        self.program = program
        self.kernel = kernel
        self.start = program.span(loop.node).start
        self.end = last_character(program, loop.node)
        self.block = loop.node.body
        self.target = loop.target
        found = bindings(program, kernel).items()
        inside = {name: [b for b in group if self._is_inside(b.statement, loop)] for name, group in found}
        self.bound = {name: group for name, group in inside.items() if group}

    def carried(self) -> Carried | None:
        names = [name for name in self.bound if self._is_carried(name)]
        running = next((r for name in names if (r := self._running(name)) is not None), None)
        accumulators: list[Accumulator] = []
        advances: list[Advance] = []
        for name in names:
            advance = self._advance(name)
            accumulator = None if advance is not None else self._accumulator(name, running)
            if advance is None and accumulator is None:
                return None
            advances += [] if advance is None else [advance]
            accumulators += [] if accumulator is None else [accumulator]
        if not accumulators or self._leaks(names):
            return None
        is_rescaled = any(a.factor_index is not None for a in accumulators)
        top, power = (running.top, running.power) if running is not None and is_rescaled else ("", "")
        return Carried(tuple(accumulators), tuple(advances), top, power)

    # which names -----------------------------------------------------------------------------------------------------

    def _is_inside(self, statement: cst.CSTNode, loop: Loop) -> bool:
        return statement is not loop.node and self.start <= self.program.span(statement).start < self.end

    def _is_carried(self, name: str) -> bool:
        """Whether an iteration or what follows the loop sees a value that is older than the iteration."""
        if nearest(self.program, self.kernel, name, self.start) is None and self.kernel.parameter(name) is None:
            return False
        first = self.bound[name][0].statement
        read_first = any(self.start <= at < self.program.span(first).end for at in self._positions(name))
        return read_first or self._is_read_after(name)

    def _positions(self, name: str) -> list[int]:
        return [self.program.span(n).start for n in reads_of(self.program, self.kernel, name)]

    def _is_read_after(self, name: str) -> bool:
        later = [at for at in self._positions(name) if at >= self.end]
        bound = [nearest(self.program, self.kernel, name, self._statement_start(at)) for at in later]
        return any(b is not None and self.start <= self.program.span(b.statement).start < self.end for b in bound)

    def _statement_start(self, position: int) -> int:
        """Where the line of a position starts: `x = f(x)` reads what was bound before it."""
        return self.program.source.rfind("\n", 0, position) + 1

    def _leaks(self, carried: Sequence[str]) -> bool:
        """Whether something else that the loop binds is read after it, its index included."""
        return any(self._is_read_after(name) for name in (self.target, *self.bound) if name not in carried)

    # what they are ---------------------------------------------------------------------------------------------------

    def _advance(self, name: str) -> Advance | None:
        statement = self.bound[name][0].statement
        added = self._added(name, statement)
        line = self.program.parents[statement]
        is_direct = self.program.parents[line] is self.block
        if len(self.bound[name]) > 1 or added is None or not is_direct or self._is_read_after(name):
            return None
        return None if names_in(added) & self.bound.keys() else Advance(name, self.program.text(added))

    def _accumulator(self, name: str, running: _Running | None) -> Accumulator | None:
        statements = [b.statement for b in self.bound[name]]
        if running is not None and name == running.top:
            return self._checked(Accumulator(name, "max", Initial("", (), False)), self._reads_of_top(running))
        index = None
        if running is not None:
            index = self._factor_index(name, statements[0], running)
        if index is not None and len(statements) == 2:
            statements = statements[1:]
        if len(statements) != 1:
            return None
        kind, value = self._joined(name, statements[0], is_rescaled=index is not None)
        if value is None or name in names_in(value) - ({name} if self._is_product(value) else set()):
            return None
        if running is not None and index is None and names_in(value) & self._below(running):
            return None
        allowed = sum(self._n_reads(b.statement, name) for b in self.bound[name])
        return self._checked(Accumulator(name, kind, Initial("", (), False), self._is_product(value), index), allowed)

    def _checked(self, found: Accumulator, n_allowed_reads: int) -> Accumulator | None:
        """With its initial value, where that can be known, and nothing else in the loop reads it."""
        n_reads = sum(self.start <= at < self.end for at in self._positions(found.name))
        initial = initial_value(self.program, self.kernel, found.name, self.start)
        if initial is None or n_reads != n_allowed_reads or (found.kind == "sum" and not initial.is_zero):
            return None
        return found._replace(initial=initial)

    def _n_reads(self, node: cst.CSTNode, name: str) -> int:
        inside = {id(n) for n in descendants(node)}
        return sum(id(n) in inside for n in reads_of(self.program, self.kernel, name))

    def _joined(self, name: str, statement: cst.CSTNode, is_rescaled: bool) -> tuple[str, cst.BaseExpression | None]:
        """Kind and new part of `name += part`, `name = tl.maximum(name, part)`, `name = tl.dot(a, b, name)`."""
        added = self._added(name, statement)
        assigned = assignment_of(statement)
        if added is not None or assigned is None:
            return "sum", added
        if self._is_product(assigned[1]):
            into = argument(cast(cst.Call, assigned[1]), 2, "acc")
            return "sum", assigned[1] if isinstance(into, cst.Name) and into.value == name else None
        for kind, one, other in operands_of(self.program, assigned[1]):
            if kind != "sum" and isinstance(one, cst.Name) and one.value == name:
                return kind, cast(cst.BaseExpression, other)
            if kind == "sum" and is_rescaled and name in names_in(one):
                return kind, cast(cst.BaseExpression, other)
        return "", None

    def _added(self, name: str, statement: cst.CSTNode) -> cst.BaseExpression | None:
        """The part of `name += part` or `name = name + part`."""
        if isinstance(statement, cst.AugAssign):
            return statement.value if isinstance(statement.operator, cst.AddAssign) else None
        assigned = assignment_of(statement)
        for kind, one, other in operands_of(self.program, assigned[1]) if assigned is not None else ():
            if kind == "sum" and isinstance(one, cst.Name) and one.value == name:
                return cast(cst.BaseExpression, other)
        return None

    def _is_product(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Call) and self.program.device_call(node) in _PRODUCTS

    # sums below a running maximum ------------------------------------------------------------------------------------

    def _running(self, top: str) -> _Running | None:
        assigned = assignment_of(self.bound[top][0].statement)
        if len(self.bound[top]) != 1 or assigned is None or not isinstance(assigned[1], cst.Name):
            return None
        new = assigned[1].value
        value = self._only_value(new)
        operands = operands_of(self.program, value) if value is not None else []
        if not any(kind == "max" and isinstance(one, cst.Name) and one.value == top for kind, one, _ in operands):
            return None
        inside = [
            n for n in reads_of(self.program, self.kernel, new) if self.start <= self.program.span(n).start < self.end
        ]
        if any(n is not assigned[1] and not self._is_exponent(n) for n in inside):
            return None
        calls = [c for c in self.kernel.all(cst.Call) if self._is_factor(c, top, new)]
        powers = {self.program.text(c.func) for c in calls}
        named = {n: self._only_value(n) for n in self.bound}
        factors = {n for n, v in named.items() if isinstance(v, cst.Call) and self._is_factor(v, top, new)}
        return _Running(top, new, powers.pop(), frozenset(factors)) if len(powers) == 1 else None

    def _below(self, running: _Running) -> set[str]:
        """The names of the loop whose value depends on how high the maximum is by then."""
        found = {running.top, running.new}
        while True:
            more = {n for n, group in self.bound.items() if n not in found and any(b.sources & found for b in group)}
            if not more:
                return found
            found |= more

    def _is_exponent(self, node: cst.CSTNode) -> bool:
        """Whether an expression stands inside `tl.exp(...)`."""
        around = (a for a in self.program.ancestors(node) if isinstance(a, cst.Call))
        return any(is_power(self.program, call) for call in around)

    def _only_value(self, name: str) -> cst.BaseExpression | None:
        found: list[Binding] = self.bound.get(name, [])
        return found[0].value if len(found) == 1 else None

    def _is_factor(self, call: cst.Call, top: str, new: str) -> bool:
        """Whether a call is `tl.exp(top - new)` in this loop."""
        if not is_power(self.program, call) or not self.start <= self.program.span(call).start < self.end:
            return False
        difference = call.args[0].value
        is_difference = isinstance(difference, cst.BinaryOperation) and isinstance(difference.operator, cst.Subtract)
        return is_difference and self.program.text(difference).replace(" ", "") == f"{top}-{new}"

    def _reads_of_top(self, running: _Running) -> int:
        """How often a loop reads the running maximum in the ways that are understood."""
        calls = [c for c in self.kernel.all(cst.Call) if self._is_factor(c, running.top, running.new)]
        return 1 + len(calls)

    def _factor_index(self, name: str, statement: cst.CSTNode, running: _Running) -> str | None:
        """The index of the factor in `name = name * factor[index] + ...` or `name *= factor`; "" for none at all."""
        if isinstance(statement, cst.AugAssign):
            is_scaled = isinstance(statement.operator, cst.MultiplyAssign)
            return self._index_of_factor(statement.value, running) if is_scaled else None
        assigned = assignment_of(statement)
        if assigned is None:
            return None
        whole: list[tuple[str, cst.CSTNode, cst.CSTNode]] = [("", assigned[1], assigned[1])]
        for _, one, _other in operands_of(self.program, assigned[1]) or whole:
            if not isinstance(one, cst.BinaryOperation) or not isinstance(one.operator, cst.Multiply):
                continue
            for scaled, factor in ((one.left, one.right), (one.right, one.left)):
                if isinstance(scaled, cst.Name) and scaled.value == name:
                    return self._index_of_factor(factor, running)
        return None

    def _index_of_factor(self, node: cst.BaseExpression, running: _Running) -> str | None:
        index = ""
        if isinstance(node, cst.Subscript):
            index = self.program.text(node)[len(self.program.text(node.value)) :]
            node = node.value
        named = isinstance(node, cst.Name) and node.value in running.factors
        called = isinstance(node, cst.Call) and self._is_factor(node, running.top, running.new)
        return index if named or called else None

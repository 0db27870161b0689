"""What a kernel loads and stores in one launch: each access with its index and mask, as the statements before it and
the numbers that the launch passes make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, argument, descendants, integer
from islands.operators.structural.fusion.host_facts import host_number
from islands.operators.structural.fusion.lane_indices import (
    Bounds,
    Counter,
    Index,
    Lanes,
    Pointer,
    Programs,
    Value,
    divided,
    expanded,
    of_atom,
    one_digit,
    plus,
    remainder,
    times,
)
from islands.operators.structural.kernels import axis_of, loops_of
from islands.operators.structural.names import bindings
from islands.operators.structural.places import last_character

Known = Mapping[str, Value]  # by name


class TracedAccess(NamedTuple):
    """One `tl.load` or `tl.store`. `pointer` is None where it is not understood."""

    call: cst.Call
    is_load: bool
    pointer: Pointer | None
    mask: cst.BaseExpression | None
    known: Known  # what names stand for there
    around: tuple[Counter, ...]  # the loops it stands in
    is_conditional: bool


class Trace:
    """The accesses of a kernel in order of the text."""

    def __init__(self, program: Program, launch: Launch) -> None:
        self.program = program
        self.kernel = cast(Scope, launch.kernel)
        self.accesses: list[TracedAccess] = []
        self.values: list[tuple[cst.BaseSmallStatement, Value | None]] = []  # what each assignment gave its name
        self.given: Known = self._given(launch)
        self._known: dict[str, Value] = dict(self.given)
        self._around: tuple[Counter, ...] = ()
        self._n_conditions = 0
        self._run(cast(cst.IndentedBlock, cast(cst.FunctionDef, self.kernel.node).body))

    def _given(self, launch: Launch) -> dict[str, Value]:
        """Parameters: numbers where the launch shows them, else pointers."""
        known: dict[str, Value] = {}
        for parameter in self.kernel.parameters:
            arg = launch.arguments.get(parameter.name)
            given = arg.value if arg is not None else parameter.default
            number = host_number(self.program, launch.scope, given)
            known[parameter.name] = Pointer(parameter.name, Index(0)) if number is None else Index(number)
        return known

    # statements ------------------------------------------------------------------------------------------------------

    def _run(self, block: cst.BaseSuite) -> None:
        for statement in block.body:
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    self._run_small(small)
            elif isinstance(statement, cst.For):
                self._run_loop(statement)
            else:
                self._run_conditional(statement)

    def _run_small(self, small: cst.BaseSmallStatement) -> None:
        self._record(small)
        name, value = _assigned(small)
        found = self.value(value, self._known) if name and value is not None else None
        self.values.append((small, found))
        self._forget(small)
        if name and found is not None:
            self._known[name] = found

    def _record(self, node: cst.CSTNode) -> None:
        for call in descendants(node):
            function = self.program.device_call(call) if isinstance(call, cst.Call) else ""
            if isinstance(call, cst.Call) and function in ("load", "store"):
                at = argument(call, 0, "pointer")
                pointer = None if at is None else self.value(at, self._known)
                mask = argument(call, 1 if function == "load" else 2, "mask")
                plain = mask if mask is None or self.program.text(mask) != "None" else None
                understood = pointer if isinstance(pointer, Pointer) else None
                conditional = self._n_conditions > 0
                known = dict(self._known)
                self.accesses.append(
                    TracedAccess(call, function == "load", understood, plain, known, self._around, conditional)
                )

    def _run_loop(self, node: cst.For) -> None:
        self._record(node.iter)
        self._forget(node)
        counter = self._counter(node)
        if counter is None:
            self._run_conditional(node)
            return
        target = cast(cst.Name, node.target).value
        once = counter.n_iterations == 1
        self._known[target] = Index(counter.start) if once else of_atom(counter)
        self._around += () if once else (counter,)
        self._run(node.body)
        self._around = self._around if once else self._around[:-1]
        self._forget(node)

    def _counter(self, node: cst.For) -> Counter | None:
        """The numbers of a loop, or None where they are not known."""
        loops = loops_of(self.program, self.kernel)
        found = next(((i, loop) for i, loop in enumerate(loops) if loop.node is node), None)
        if found is None:
            return None
        number, loop = found
        values = [self.value(n, self._known) if n is not None else None for n in (loop.start, loop.stop, loop.step)]
        numbers = [v.number if isinstance(v, Index) else None for v in values]
        start, stop, step = (n if n is not None else d for n, d in zip(numbers, (0, None, 1), strict=True))
        missing = [n for n, v in zip((loop.start, loop.step), (numbers[0], numbers[2]), strict=True) if n and v is None]
        if missing or start is None or stop is None or not step or step < 0 or stop <= start:
            return None
        return Counter(number, start, stop, step)

    def _run_conditional(self, statement: cst.CSTNode) -> None:
        """A statement that may run once, often or never: what it binds is unknown in it and after it."""
        self._forget(statement)
        self._n_conditions += 1
        for node in descendants(statement):
            if isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
                self._record(node)
        self._n_conditions -= 1

    def _forget(self, statement: cst.CSTNode) -> None:
        """Names that a statement, or one inside it, binds."""
        start = self.program.span(statement).start
        end = self.program.span(statement).end
        if isinstance(statement, cst.BaseCompoundStatement):
            end = last_character(self.program, statement)
        for name, group in bindings(self.program, self.kernel).items():
            if any(start <= self.program.span(b.statement).start < end for b in group):
                self._known.pop(name, None)

    # expressions -----------------------------------------------------------------------------------------------------

    def value(self, node: cst.CSTNode, known: Known) -> Value | None:
        """What an expression is, where it is an index, a mask or a pointer that is understood."""
        number = integer(node)
        if number is not None:
            return Index(number)
        if isinstance(node, cst.Name):
            return known.get(node.value)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.value(node.expression, known)
            return times(Index(-1), inner) if isinstance(inner, Index) else None
        if isinstance(node, cst.BinaryOperation):
            left, right = self.value(node.left, known), self.value(node.right, known)
            return None if left is None or right is None else _combined(node.operator, left, right)
        if isinstance(node, cst.Comparison):
            return self._comparison(node, known)
        if isinstance(node, cst.IfExp) and self.program.text(node.body) == "None":
            return self.value(node.orelse, known)  # a mask that is left out only where it is true everywhere
        if isinstance(node, cst.Subscript):
            return self._subscript(node, known)
        return self._call(node, known) if isinstance(node, cst.Call) else None

    def _comparison(self, node: cst.Comparison, known: Known) -> Bounds | None:
        """`variable < number`"""
        target = node.comparisons[0]
        left, right = self.value(node.left, known), self.value(target.comparator, known)
        if len(node.comparisons) != 1 or not isinstance(target.operator, cst.LessThan):
            return None
        digit = one_digit(left) if isinstance(left, Index) else None
        number = right.number if isinstance(right, Index) else None
        if digit is None or number is None or (digit.divisor, digit.size) != (1, None):
            return None
        return Bounds(frozenset({(digit.variable, number)}))

    def _subscript(self, node: cst.Subscript, known: Known) -> Value | None:
        """`x[:, None]`, `x[None, :]`, `x[:]`"""
        inner = self.value(node.value, known)
        texts = [self.program.text(element.slice).strip() for element in node.slice]
        if inner is None or texts.count(":") != 1 or not set(texts) <= {":", "None"}:
            return None
        return expanded(inner, texts.index(":"), len(texts))

    def _call(self, node: cst.Call, known: Known) -> Value | None:
        function = self.program.device_call(node)
        given = [self.value(a.value, known) for a in node.args]
        if function == "program_id":
            axis = axis_of(node)
            return None if axis is None else of_atom(Programs(axis))
        if function == "arange" and len(given) == 2 and given[0] == Index(0):
            extent = given[1].number if isinstance(given[1], Index) else None
            return None if extent is None else of_atom(Lanes(extent, 0, 1))
        if function == "full":
            values = [self.program.text(a.value) for a in node.args]
            return Bounds() if len(values) == 3 and values[1] == "True" else None
        if function in ("max_contiguous", "multiple_of") and given:
            return given[0]
        return self._cast(node, known)

    def _cast(self, node: cst.Call, known: Known) -> Index | None:
        """`x.to(tl.int64)` and `x.to(tl.int32)`"""
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "to" or len(node.args) != 1:
            return None
        kind = self.program.qualified(node.args[0].value).removeprefix("triton.language.")
        inner = self.value(node.func.value, known)
        if kind not in ("int32", "int64") or not isinstance(inner, Index) or inner.number is not None:
            return None
        return inner._replace(is_wide=kind == "int64")


def _assigned(small: cst.BaseSmallStatement) -> tuple[str, cst.BaseExpression | None]:
    """The one name that a statement gives a value; empty where it is of another kind."""
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        return small.targets[0].target.value, small.value
    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
        return small.target.value, small.value
    return "", None


def _combined(operator: cst.BaseBinaryOp, left: Value, right: Value) -> Value | None:
    if isinstance(left, Bounds) and isinstance(right, Bounds):
        return Bounds(left.below | right.below) if isinstance(operator, cst.BitAnd) else None
    if isinstance(left, Pointer) and isinstance(right, Index):
        return left._replace(offset=plus(left.offset, right)) if isinstance(operator, cst.Add) else None
    if not isinstance(left, Index) or not isinstance(right, Index):
        return None
    if isinstance(operator, cst.Add | cst.Subtract):
        return plus(left, right, 1 if isinstance(operator, cst.Add) else -1)
    if isinstance(operator, cst.Multiply):
        return times(left, right)
    divisor = right.number
    if divisor is None or divisor <= 0 or not isinstance(operator, cst.FloorDivide | cst.Modulo):
        return None
    return divided(left, divisor) if isinstance(operator, cst.FloorDivide) else remainder(left, divisor)

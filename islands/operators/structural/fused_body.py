"""The statements of an elementwise kernel as they stand behind another kernel's store: in that kernel's variables, with
its masks, for the value that is stored there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, children, descendants, names_in
from islands.operators.structural.kernel_trace import TracedAccess
from islands.operators.structural.lane_indices import Bounds, Digit, Index, Pointer, Variable, digits_of, one_digit
from islands.operators.structural.launch_pairs import Handover, LaunchPair
from islands.operators.structural.names import bindings
from islands.operators.structural.numberings import pieces_of
from islands.operators.structural.text import Edit, splice

_ELEMENTWISE = re.compile(
    "abs|add|cast|ceil|clamp|cos|div_rn|erf|exp|exp2|fdiv|floor|fma|full_like|log|log2|max|maximum|min|minimum|mul|"
    "mulhi|rsqrt|sigmoid|sin|sqrt|sqrt_rn|sub|umulhi|where|zeros_like"
)
_METHODS = re.compile(r"to|is_\w+")
_OF_TILES = ("shape", "numel", "T", "handle", "type")
_MAX_DEPTH = 8  # of functions that call others
_SHAPED = {"full": 0, "zeros": 0, "broadcast_to": 1}


class NotUnderstoodError(ValueError):
    """A kernel has something that cannot be written behind another's store."""


class Line(NamedTuple):
    """A statement of the second kernel in its new words, with the names of that kernel that these read."""

    reads: frozenset[str]
    text: str


class Surroundings:
    """What the first kernel calls its variables and masks where the store stands."""

    def __init__(self, program: Program, pair: LaunchPair) -> None:
        self._program = program
        self._pair = pair
        self._device = program.alias("triton.language")
        self._masks = {v: self._mask(v) for v in pair.numbering.masked}
        ranks = [v.lanes.rank for v in pair.numbering.extents if v.lanes is not None]
        self.ones = f"[{', '.join(['1'] * max(ranks, default=1))}]"

    def text(self, index: Index) -> str:
        """An index of the first kernel's variables as an expression."""
        digits = digits_of(index) or {}
        terms = sorted((abs(f), f, self._digit(d, index.is_wide)) for d, f in digits.items())
        text = str(index.constant) if index.constant or not terms else ""
        for size, factor, name in terms:
            term = name if size == 1 else f"{size}*{name}"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {term}" if text else term if factor > 0 else f"-{term}"
        return text

    def mask(self, variables: Iterable[Variable]) -> str:
        """The condition under which such variables stand for elements; empty where they always do."""
        wanted = set(variables)
        return " & ".join(text for v, text in self._masks.items() if v in wanted)

    @property
    def full_mask(self) -> str:
        return self.mask(self._pair.numbering.extents) or f"{self._device}.full({self.ones}, True, {self._device}.int1)"

    def loaded(self, parameter: str, index: Index) -> str:
        """The name of what the first kernel has loaded from there already; empty where there is none."""
        wanted = self._digits(index)
        start = self._program.span(self._pair.store.call).start
        for access in self._pair.before.accesses:
            name = self._name_of(access)
            at = access.pointer
            same = at is not None and at.parameter == parameter and self._digits(at.offset) == wanted
            earlier = self._program.span(access.call).start < start and not access.is_conditional
            if name and same and earlier and self._holds_all(access):
                return name
        return ""

    def _digits(self, index: Index) -> tuple[int, frozenset[tuple[Digit, int]]]:
        digits = digits_of(index) or {}
        return index.constant, frozenset((self._shortest(d), f) for d, f in digits.items())

    def _name_of(self, access: TracedAccess) -> str:
        """The name of a value that a kernel loads, where it has no other value."""
        statement = self._program.parents[access.call]
        around = self._pair.store.around
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        name = target.value if isinstance(target, cst.Name) else ""
        once = len(bindings(self._program, self._pair.before.kernel).get(name, [])) == 1
        return name if access.is_load and once and access.around == around[: len(access.around)] else ""

    def _holds_all(self, access: TracedAccess) -> bool:
        """Whether a load gives a value wherever the store stores one."""
        mask = Bounds() if access.mask is None else self._pair.before.value(access.mask, access.known)
        extents = self._pair.numbering.extents
        return isinstance(mask, Bounds) and all(v in extents and bound >= extents[v] for v, bound in mask.below)

    def _mask(self, variable: Variable) -> str:
        bound = self._pair.numbering.extents[variable]
        for name, value in self._pair.store.known.items():
            if value == Bounds(frozenset({(variable, bound)})):
                return name
        return f"({self._digit(Digit(variable), None)} < {bound})"

    def _digit(self, digit: Digit, is_wide: bool | None) -> str:
        """A name for a digit, or what it is computed by from the name of the variable; cast where the width differs."""
        wanted = self._shortest(digit)
        for name, value in reversed(list(self._pair.store.known.items())):
            found = one_digit(value) if isinstance(value, Index) else None
            if found is not None and self._shortest(found) == wanted and isinstance(value, Index):
                return name if is_wide in (None, value.is_wide) else f"{name}.to({self._device}.{_width(is_wide)})"
        if wanted == Digit(digit.variable):
            raise NotUnderstoodError("a variable of the first kernel has no name")
        text = self._digit(Digit(digit.variable), is_wide)
        text = text if wanted.divisor == 1 else f"({text} // {wanted.divisor})"
        return text if wanted.size is None else f"({text} % {wanted.size})"

    def _shortest(self, digit: Digit) -> Digit:
        """Without a size where that follows from the extent of the variable."""
        extent = self._pair.numbering.extents.get(digit.variable, 0)
        is_last = digit.size is not None and digit.divisor * digit.size >= extent
        return digit._replace(size=None) if is_last else digit


def _width(is_wide: bool | None) -> str:
    return "int64" if is_wide else "int32"


class Body:
    """The second kernel's statements for the first kernel.

    Args:
        parameters: what the second kernel's tensors are called in the first.
        taken: names that the first kernel or the module uses; the new ones are added.

    Raises:
        NotUnderstoodError: where a statement cannot be written there.
    """

    def __init__(self, program: Program, pair: LaunchPair, parameters: Mapping[str, str], taken: set[str]) -> None:
        self._program = program
        self._pair = pair
        self._kernel = cast(Scope, pair.second.kernel)
        self._around = Surroundings(program, pair)
        self._parameters = parameters
        self._accesses = {id(a.call): a for a in pair.trace.accesses}
        self._device = program.alias("triton.language")
        first = pair.before.kernel
        self._locals = {*bindings(program, first), *(p.name for p in first.parameters)}
        self._names = {name: fresh_in(taken, name) for name in self._bound_names()}
        self._values = {id(h.load.call): fresh_in(taken, f"{h.tensor.name}_value") for h in pair.handovers}

    def value_of(self, handover: Handover) -> str:
        """The line that keeps what the first kernel stores, rounded as its tensor would have it."""
        value = argument(handover.store.call, 1, "value")
        if value is None:
            raise NotUnderstoodError("a store without a value")
        rounded = f"{self._device}.cast({self._program.text(value)}, {self._device}.{handover.tensor.element})"
        return f"{self._values[id(handover.load.call)]} = {rounded}"

    def lines(self) -> list[str]:
        """The text of every statement that the second kernel's stores need."""
        needed: set[str] = set()
        kept: list[str] = []
        for small, value in reversed(self._pair.trace.values):
            binds = {n for target in _targets(small) for n in names_in(target)}
            line = self._line(small, value) if not binds or binds & needed else None
            if line is not None:
                needed = (needed - binds) | line.reads
                kept.append(line.text)
        return kept[::-1]

    def _bound_names(self) -> list[str]:
        body = cast(cst.IndentedBlock, cast(cst.FunctionDef, self._kernel.node).body)
        if not all(isinstance(s, cst.SimpleStatementLine) for s in body.body):
            raise NotUnderstoodError("the second kernel branches or loops")
        targets = [target for small, _ in self._pair.trace.values for target in _targets(small)]
        return list(dict.fromkeys(n for t in targets for n in sorted(names_in(t))))

    # statements ------------------------------------------------------------------------------------------------------

    def _line(self, small: cst.BaseSmallStatement, value: object) -> Line | None:
        if isinstance(small, cst.Expr):
            return self._effect(small.value)
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
        elif isinstance(small, cst.AnnAssign) and isinstance(value, Index):
            target = small.target
        else:
            raise NotUnderstoodError("a statement that is neither an assignment nor a store")
        name = self._text(target)
        if isinstance(value, Index):
            return Line(frozenset(), f"{name} = {self._index(value)}")
        if isinstance(value, Bounds) and self._is_whole(value):
            return Line(frozenset(), f"{name} = {self._around.full_mask}")
        given = cast(cst.BaseExpression, small.value)
        return Line(self._reads(given), f"{name} = {self._text(given)}")

    def _effect(self, node: cst.BaseExpression) -> Line | None:
        if isinstance(node, cst.SimpleString):
            return None
        access = self._accesses.get(id(node))
        if access is None or access.is_load:
            raise NotUnderstoodError("a call that is no store")
        return Line(self._reads(node), self._text(node))

    def _reads(self, node: cst.CSTNode) -> frozenset[str]:
        """The names of the second kernel that the new words of an expression read: not those of addresses."""
        if id(node) in self._accesses:
            access = self._accesses[id(node)]
            address = argument(access.call, 0, "pointer")
            rest = [a.value for a in access.call.args if a.value not in (address, access.mask)]
            return frozenset(n for part in (*self._extra_masks(access), *rest) for n in self._reads(part))
        if isinstance(node, cst.Name):
            return frozenset({node.value} & set(self._names))
        inner = [node.value] if isinstance(node, cst.Attribute | cst.Arg) else children(node)
        return frozenset(n for child in inner for n in self._reads(child))

    # expressions -----------------------------------------------------------------------------------------------------

    def _text(self, node: cst.CSTNode) -> str:
        """An expression in its new words."""
        start, end = self._program.span(node)
        edits = [Edit(e.start - start, e.end - start, e.text) for e in self._edits(node)]
        text = splice(self._program.source[start:end], edits)
        if text is None:
            raise NotUnderstoodError("edits that overlap")
        depth = len(getattr(node, "lpar", ()))
        return "(" * depth + text + ")" * depth

    def _edits(self, node: cst.CSTNode) -> list[Edit]:
        if id(node) in self._accesses:
            return [Edit(*self._program.span(node), self._access(self._accesses[id(node)]))]
        if isinstance(node, cst.Name):
            return [Edit(*self._program.span(node), self._name(node.value))]
        if isinstance(node, cst.Subscript) or (isinstance(node, cst.Attribute) and node.attr.value in _OF_TILES):
            raise NotUnderstoodError("a part or the shape of a tile")
        if isinstance(node, cst.Attribute | cst.Arg):
            return self._edits(node.value)
        if isinstance(node, cst.Call):
            shaped = self._shaped(node)
            if shaped is not None:
                return shaped
            if not is_elementwise(self._program, node):
                raise NotUnderstoodError(f"a call of {self._program.text(node.func)}")
        return [edit for child in children(node) for edit in self._edits(child)]

    def _name(self, name: str) -> str:
        given = self._pair.trace.given.get(name)
        if name in self._names:
            return self._names[name]
        if isinstance(given, Pointer) or self._is_block(name):
            raise NotUnderstoodError(f"{name} outside an address or a shape")
        if given is None and name in self._locals:
            raise NotUnderstoodError(f"{name} is something else in the first kernel")
        return str(given.constant) if isinstance(given, Index) else name

    def _is_block(self, name: str) -> bool:
        """Whether a parameter is an extent of the second kernel's tiles."""
        calls = self._program.device_calls(self._kernel, "arange")
        return self._kernel.parameter(name) is not None and any(name in names_in(call) for call in calls)

    def _shaped(self, node: cst.Call) -> list[Edit] | None:
        """A constant of the shape of a tile has one element instead, which goes with every tile."""
        function = self._program.device_call(node)
        if function not in _SHAPED:
            return None
        shape = argument(node, _SHAPED[function], "shape")
        rest = [a.value for a in node.args if a.value is not shape]
        if not isinstance(shape, cst.List | cst.Tuple) or len(shape.elements) != 1:
            if isinstance(shape, cst.Attribute) and function != "broadcast_to":
                return [edit for value in (shape.value, *rest) for edit in self._edits(value)]
            raise NotUnderstoodError("a shape of several dimensions")
        if function == "broadcast_to":
            return [Edit(*self._program.span(node), f"({self._text(node.args[0].value)})")]
        edits = [edit for value in rest for edit in self._edits(value)]
        return [Edit(*self._program.span(shape), self._around.ones), *edits]

    # accesses --------------------------------------------------------------------------------------------------------

    def _access(self, access: TracedAccess) -> str:
        """A load or store at the same element, under the first kernel's mask for what its address depends on."""
        if id(access.call) in self._values:
            return self._values[id(access.call)]
        index = self._translated(access.pointer.offset) if access.pointer is not None else None
        if access.pointer is None or index is None:
            raise NotUnderstoodError("an address that is not made of digits")
        variables = [d.variable for d in digits_of(index) or {}]
        if not access.is_load:
            self._check_store(access)
        extra = [self._text(node) for node in self._extra_masks(access)]
        parameter = self._parameters[access.pointer.parameter]
        loaded = self._around.loaded(parameter, index) if access.is_load and not extra else ""
        if loaded:
            return loaded
        mask = " & ".join(filter(None, (self._around.mask(variables), *extra)))
        parts = [f"{parameter} + ({self._around.text(index)})"]
        value = None if access.is_load else argument(access.call, 1, "value")
        parts += [] if value is None else [self._text(value)]
        parts += [mask] if mask else []
        arguments = ", ".join([*parts, *self._options(access, bool(extra))])
        return f"{self._device}.{'load' if access.is_load else 'store'}({arguments})"

    def _options(self, access: TracedAccess, extra: bool) -> list[str]:
        """What an access says beside its address, value and mask."""
        other = argument(access.call, 2, "other") if access.is_load else None
        rest = [a for a in access.call.args if a.keyword is not None]
        known = ("pointer", "mask", "other", "value")
        texts = [f"{a.keyword.value}={self._text(a.value)}" for a in rest if a.keyword and a.keyword.value not in known]
        n_plain = len(access.call.args) - len(rest)
        if n_plain > 3:
            raise NotUnderstoodError("options without names")
        return [*([f"other={self._text(other)}"] if other is not None and extra else []), *texts]

    def _check_store(self, access: TracedAccess) -> None:
        """Every element has a place of its own."""
        whole = {self._pair.numbering.element: self._pair.numbering.n_elements}
        if access.pointer is None or not pieces_of(access.pointer.offset, whole):
            raise NotUnderstoodError("a store that joins elements")

    def _extra_masks(self, access: TracedAccess) -> list[cst.BaseExpression]:
        """The parts of a mask that are more than what every element fulfils."""
        return [] if access.mask is None else self._beyond(access.mask, access)

    def _beyond(self, node: cst.BaseExpression, access: TracedAccess) -> list[cst.BaseExpression]:
        value = self._pair.trace.value(node, access.known)
        if isinstance(value, Bounds) and self._is_whole(value):
            return []
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
            return [*self._beyond(node.left, access), *self._beyond(node.right, access)]
        if isinstance(node, cst.Name):
            return [node]
        raise NotUnderstoodError("a mask that is no conjunction of names")

    def _is_whole(self, bounds: Bounds) -> bool:
        """Whether every element fulfils a mask."""
        return all(
            v == self._pair.numbering.element and bound >= self._pair.numbering.n_elements for v, bound in bounds.below
        )

    def _index(self, index: Index) -> str:
        translated = self._translated(index)
        if translated is None:
            raise NotUnderstoodError("an index that is not made of digits")
        return self._around.text(translated)

    def _translated(self, index: Index) -> Index | None:
        return self._pair.numbering.digits.translated(index)


def _targets(small: cst.BaseSmallStatement) -> list[cst.BaseExpression]:
    """What a statement binds."""
    if isinstance(small, cst.AnnAssign):
        return [small.target]
    return [t.target for t in small.targets] if isinstance(small, cst.Assign) else []


def is_elementwise(program: Program, call: cst.Call, depth: int = 0) -> bool:
    """Whether a call answers for each element by that element alone."""
    if isinstance(call.func, cst.Attribute) and _METHODS.fullmatch(call.func.attr.value):
        return True
    if isinstance(call.func, cst.Name) and call.func.value in program.kernels:
        return depth < _MAX_DEPTH and _is_elementwise_function(program, program.kernels[call.func.value], depth + 1)
    name = program.qualified(call.func)
    if name.startswith("triton.language.extra."):
        return ".libdevice." in name
    inside = name.removeprefix("triton.language.").removeprefix("math.")
    joins_lanes = name in ("triton.language.max", "triton.language.min")
    known = name.startswith("triton.language.") and _ELEMENTWISE.fullmatch(inside) is not None
    return (known and not joins_lanes) or name in ("float", "int")


def _is_elementwise_function(program: Program, function: Scope, depth: int) -> bool:
    inner = list(descendants(cast(cst.FunctionDef, function.node).body))
    calls = [n for n in inner if isinstance(n, cst.Call)]
    parts = any(isinstance(n, cst.Subscript) for n in inner)
    return not parts and all(is_elementwise(program, c, depth) or _makes_constant(program, c) for c in calls)


def _makes_constant(program: Program, call: cst.Call) -> bool:
    """A constant of one element."""
    shape = argument(call, 0, "shape")
    single = isinstance(shape, cst.Tuple | cst.List) and [program.text(e.value) for e in shape.elements] == ["1"]
    return program.device_call(call) in ("full", "zeros") and (single or isinstance(shape, cst.Attribute))


def fresh_in(taken: set[str], name: str) -> str:
    """The name itself where nothing uses it yet, else with a number; taken from then on."""
    fresh, n = name, 1
    while fresh in taken:
        fresh, n = f"{name}_{n}", n + 1
    taken.add(fresh)
    return fresh

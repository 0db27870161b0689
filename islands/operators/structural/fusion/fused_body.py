"""The statements of an elementwise kernel as they stand behind another kernel's store: in that kernel's variables, with
its masks, for the value that is stored there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, names_in
from islands.operators.structural.fusion.elementwise import is_elementwise
from islands.operators.structural.fusion.kernel_trace import TracedAccess
from islands.operators.structural.fusion.lane_indices import Bounds, Index, Pointer, digits_of
from islands.operators.structural.fusion.launch_pairs import Handover, LaunchPair
from islands.operators.structural.fusion.numberings import pieces_of
from islands.operators.structural.fusion.surroundings import NotUnderstoodError, Surroundings
from islands.operators.structural.names import bindings
from islands.operators.structural.parts import children
from islands.operators.structural.text import Edit, splice

_OF_TILES = ("shape", "numel", "T", "handle", "type")
_SHAPED = {"full": 0, "zeros": 0, "broadcast_to": 1}


class Line(NamedTuple):
    """A statement of the second kernel in its new words, with the names of that kernel that these read."""

    reads: frozenset[str]
    text: str


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


def fresh_in(taken: set[str], name: str) -> str:
    """The name itself where nothing uses it yet, else with a number; taken from then on."""
    fresh, n = name, 1
    while fresh in taken:
        fresh, n = f"{name}_{n}", n + 1
    taken.add(fresh)
    return fresh

"""What a kernel calls its variables and masks where it stores a tensor."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from islands.operators.structural.analysis import Program
from islands.operators.structural.fusion.kernel_trace import TracedAccess
from islands.operators.structural.fusion.lane_indices import Bounds, Digit, Index, Variable, digits_of, one_digit
from islands.operators.structural.fusion.launch_pairs import LaunchPair
from islands.operators.structural.names import bindings


class NotUnderstoodError(ValueError):
    """A kernel has something that cannot be written behind another's store."""


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

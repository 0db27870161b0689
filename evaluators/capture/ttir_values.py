"""What is known of a value of a kernel without running it: its number, the memory that it points to or comes from."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

Number = int | float | bool
Memory = Hashable  # one storage, as the caller names it
NOTHING: frozenset[Memory] = frozenset()

_CONSTANT = re.compile(r"\s*(?:\{.*?\}\s*)?(?:dense<)?(true|false|-?\d+(?:\.\d+(?:[eE][-+]?\d+)?)?)>?\s*(?::|$)")


class Offset(NamedTuple):
    """A number, or an address, as the sum of values that are the same whenever the program asks, and a rest."""

    terms: frozenset[tuple[Value, int]]  # each value with its factor
    low: int  # of the rest: elements of a block and iterations of a loop
    high: int

    def is_apart_from(self, other: Offset) -> bool:
        """Can they never be equal?"""
        return self.terms == other.terms and (self.low > other.high or self.high < other.low)

    def plus(self, other: Offset, factor: int = 1) -> Offset:
        factors = dict(self.terms)
        for value, its in other.terms:
            factors[value] = factors.get(value, 0) + its * factor
        terms = frozenset((value, its) for value, its in factors.items() if its)
        ends = (other.low * factor, other.high * factor)
        return Offset(terms, self.low + min(ends), self.high + max(ends))


ZERO = Offset(frozenset(), 0, 0)


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar, or a block whose elements are alike in all that is known. Two values are equal when they are one."""

    number: Number | None = None
    points_to: frozenset[Memory] = NOTHING
    comes_from: frozenset[Memory] = NOTHING  # memory that was read to make it
    loops: frozenset[int] = frozenset()  # it may differ from iteration to iteration of these
    is_rising: bool = True  # from iteration to iteration, where it differs
    is_bound: bool = False  # a condition that is true in the first iteration if it is in a later one
    parts: tuple[Value, ...] = ()  # of which it is the conjunction
    differs: bool = False  # from element to element, or from one use of this object to the next
    sum: Offset | None = None  # what it is the sum of, where it is one

    @property
    def offset(self) -> Offset | None:
        """Where the value itself is all that is known, it is its own only term."""
        if self.sum is not None:
            return self.sum
        if isinstance(self.number, int):
            return Offset(frozenset(), int(self.number), int(self.number))
        return None if self.differs or self.loops else Offset(frozenset({(self, 1)}), 0, 0)

    @property
    def conjuncts(self) -> tuple[Value, ...]:
        return (self, *self.parts) if self.parts else (self,)


UNKNOWN = Value(differs=True)


def constant(text: str) -> Value:
    """Of `arith.constant`: a number, or a block of one number."""
    found = _CONSTANT.match(text)
    if found is None:
        return UNKNOWN
    word = found[1]
    if word in ("true", "false"):
        return Value(word == "true")
    return Value(int(word) if word.lstrip("-").isdigit() else float(word))


def joined(values: Sequence[Value]) -> Value:
    """A value that is one of several."""
    if len(set(values)) == 1:
        return values[0]
    return replace(mixed(values), number=_common([v.number for v in values]))


def mixed(values: Sequence[Value]) -> Value:
    """A value that is made of others, by an operation of which nothing is known."""
    loops = frozenset[int]().union(*(v.loops for v in values))
    return Value(
        points_to=NOTHING.union(*(v.points_to for v in values)),
        comes_from=NOTHING.union(*(v.comes_from for v in values)),
        loops=loops,
        is_rising=not loops,
        differs=any(v.differs for v in values),
    )


def varying(value: Value, loop: int) -> Value:
    """A value that a loop carries from iteration to iteration."""
    return replace(value, loops=value.loops | {loop}, is_rising=False, is_bound=False, parts=(), sum=None)


def after(value: Value, loop: int) -> Value:
    """A value that a loop has left behind."""
    loops = value.loops - {loop}
    return replace(value, loops=loops, is_rising=not loops)


def computed(name: str, text: str, operands: Sequence[Value]) -> Value:
    """The result of an operation that touches no memory."""
    if name == "arith.constant":
        return constant(text)
    if name in _KEEPING and len(operands) == 1:
        return operands[0]
    if name == "arith.select" and operands[0].number is not None:
        return operands[1] if operands[0].number else operands[2]
    if name == "arith.andi" and len(operands) == 2:
        return _conjunction(*operands)
    made = mixed(operands)
    return replace(
        made,
        number=_number(name, text, operands),
        is_rising=not made.loops or _is_rising(name, operands),
        is_bound=name == "arith.cmpi" and _is_bound(text, operands),
        differs="tensor<" in text,
        sum=_sum(name, text, [v.offset for v in operands]),
    )


def _conjunction(left: Value, right: Value) -> Value:
    numbers = (left.number, right.number)
    if all(number is not None for number in numbers):
        return replace(mixed((left, right)), number=left.number & right.number)  # type: ignore[operator]
    if any(number is False for number in numbers):
        return replace(mixed((left, right)), number=False)
    if left.number is True or right.number is True:
        return right if left.number is True else left
    return replace(mixed((left, right)), parts=(*left.conjuncts, *right.conjuncts))


# The same in every element: shapes do not matter here
_KEEPING = frozenset(
    {
        *("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.unsplat"),
        *("arith.index_cast", "ttg.convert_layout"),
    }
)
_RISING = frozenset(
    {"arith.addi", "arith.extsi", "arith.extui", "arith.trunci", "arith.minsi", "arith.maxsi", "tt.make_range"}
)


def _is_rising(name: str, operands: Sequence[Value]) -> bool:
    if name in _RISING:
        return all(v.is_rising for v in operands)
    if name in ("arith.muli", "arith.divsi", "arith.divui"):
        left, right = operands
        factor = right.number if right.number is not None else left.number
        return factor is not None and factor >= 0 and left.is_rising and right.is_rising
    return False


def _is_bound(text: str, operands: Sequence[Value]) -> bool:
    """`start + columns < n`: a condition that later iterations do not make true."""
    predicate = text.split(",")[0].strip()
    low, high = operands if predicate in ("slt", "sle", "ult", "ule") else reversed(operands)
    return predicate not in ("eq", "ne") and low.is_rising and not high.loops


def counted(first: Value, end: Value) -> Offset | None:
    """The numbers that a loop counts through."""
    known = isinstance(first.number, int) and isinstance(end.number, int)
    return Offset(frozenset(), int(first.number), int(end.number) - 1) if known else None  # type: ignore[arg-type]


def _sum(name: str, text: str, offsets: Sequence[Offset | None]) -> Offset | None:
    """What an operation that adds makes of its operands, in elements of what a pointer points to."""
    if name == "tt.make_range":
        ends = dict(re.findall(r"(start|end) = (\d+)", text))
        return Offset(frozenset(), int(ends["start"]), int(ends["end"]) - 1) if len(ends) == 2 else None
    if not offsets or any(offset is None for offset in offsets):
        return None
    first, *others = (offset for offset in offsets if offset is not None)
    if name in ("arith.extsi", "arith.extui", "arith.trunci") and not others:
        return first
    if name in ("tt.addptr", "arith.addi", "arith.subi"):
        return first.plus(others[0], -1 if name == "arith.subi" else 1)
    if name == "arith.muli":
        number, block = sorted((first, others[0]), key=lambda offset: bool(offset.terms) or offset.low != offset.high)
        is_number = not number.terms and number.low == number.high
        return ZERO.plus(block, number.low) if is_number else None
    return None


def _common(numbers: Sequence[Number | None]) -> Number | None:
    return numbers[0] if all(number == numbers[0] for number in numbers) else None


def _divided(a: Number, b: Number) -> Number:
    return int(a / b) if abs(a) < 2**52 else a // b


_COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    **{"eq": operator.eq, "ne": operator.ne, "oeq": operator.eq, "une": operator.ne, "one": operator.ne},
    **{"ueq": operator.eq, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt, "sge": operator.ge},
    **{"ult": operator.lt, "ule": operator.le, "ugt": operator.gt, "uge": operator.ge},
    **{"olt": operator.lt, "ole": operator.le, "ogt": operator.gt, "oge": operator.ge},
}
_ARITHMETIC: dict[str, Callable[[Number, Number], Number]] = {
    **{"addi": operator.add, "subi": operator.sub, "muli": operator.mul, "divsi": _divided, "divui": _divided},
    **{"minsi": min, "maxsi": max, "minui": min, "maxui": max},
    **{"addf": operator.add, "subf": operator.sub, "mulf": operator.mul},
}


def _number(name: str, text: str, operands: Sequence[Value]) -> Number | None:
    """What arithmetic on known numbers gives; None where it does not matter or may overflow."""
    numbers = [v.number for v in operands]
    kind = name.removeprefix("arith.")
    if kind == "ori" and any(number is True for number in numbers):
        return True
    if not numbers or any(number is None for number in numbers):
        return None
    try:
        return _folded(kind, text, [number for number in numbers if number is not None])
    except (ZeroDivisionError, OverflowError):
        return None


def _folded(kind: str, text: str, numbers: list[Number]) -> Number | None:
    first = numbers[0]
    if kind in ("extsi", "extui", "sitofp", "uitofp") and len(numbers) == 1:
        return (-int(first) if kind == "extsi" else int(first)) if isinstance(first, bool) else first
    if len(numbers) != 2:
        return None
    if kind in ("cmpi", "cmpf"):
        predicate = text.split(",")[0].strip()
        is_unsigned = kind == "cmpi" and predicate.startswith("u")
        compare = None if is_unsigned and min(numbers) < 0 else _COMPARISONS.get(predicate)
        return None if compare is None else compare(*numbers)
    if kind in ("ori", "xori") and all(isinstance(number, bool) for number in numbers):
        return numbers[0] or numbers[1] if kind == "ori" else numbers[0] != numbers[1]
    result = _ARITHMETIC[kind](*numbers) if kind in _ARITHMETIC else None
    return result if result is None or isinstance(result, float) or abs(result) < 2**31 else None

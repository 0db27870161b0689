"""What is known of a value of a kernel without running it: its number, the memory that it points to or comes from."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

Number = int | float | bool
Memory = Hashable  # one storage, as the caller names it
NOTHING: frozenset[Memory] = frozenset()

_CONSTANT = re.compile(r"\s*(?:\{.*?\}\s*)?(?:dense<)?(true|false|-?\d+(?:\.\d+(?:[eE][-+]?\d+)?)?)>?\s*(?::|$)")


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

    @property
    def conjuncts(self) -> tuple[Value, ...]:
        return (self, *self.parts) if self.parts else (self,)


UNKNOWN = Value()


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
    )


def varying(value: Value, loop: int) -> Value:
    """A value that a loop carries from iteration to iteration."""
    return replace(value, loops=value.loops | {loop}, is_rising=False, is_bound=False, parts=())


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

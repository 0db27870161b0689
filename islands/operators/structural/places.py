"""Places: where in the text a value stands or would stand, so that it can be set or taken away."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, keyword
from islands.operators.structural.text import Edit, Span, indent_of, line_end


class Slot(NamedTuple):
    """Characters [start, end) become prefix + value + suffix."""

    start: int
    end: int
    prefix: str = ""
    suffix: str = ""


class Place(NamedTuple):
    """The slots that must all hold a value, edits that go with it, and the edits that take the value away."""

    slots: tuple[Slot, ...]
    extra: tuple[Edit, ...] = ()
    removal: tuple[Edit, ...] | None = None

    def set(self, text: str) -> tuple[Edit, ...]:
        return (*(Edit(s.start, s.end, s.prefix + text + s.suffix) for s in self.slots), *self.extra)

    @property
    def anchor(self) -> Span:
        """Equal for two places that would write at the same point."""
        return Span(self.slots[0].start, self.slots[0].end)


class Value(NamedTuple):
    """What stands at a place today: source text, or None where nothing is written."""

    text: str | None
    place: Place


def value_at(program: Program, node: cst.CSTNode) -> Value:
    """An expression that can be replaced."""
    span = program.span(node)
    return Value(program.source[span.start : span.end], Place((Slot(span.start, span.end),)))


def call_option(program: Program, call: cst.Call, name: str) -> Value:
    """The keyword argument `name` of a call: where it stands, or where it would be added."""
    present = keyword(call, name)
    if present is not None:
        value = value_at(program, present.value)
        return Value(value.text, value.place._replace(removal=(_removal(program, present),)))
    for arg in call.args:
        if arg.star == "**":
            return _option_in_mapping(program, arg, name)
    return Value(None, Place((_after_last_argument(program, call, f"{name}="),)))


def add_argument(program: Program, call: cst.Call, text: str) -> Edit:
    """The edit that gives a call one more argument at its end."""
    slot = _after_last_argument(program, call, text)
    return Edit(slot.start, slot.end, slot.prefix)


def rebind_after(program: Program, statement: cst.CSTNode, name: str) -> Place:
    """A new assignment to `name` on the line after a statement."""
    span = program.span(statement)
    end = line_end(program.source, last_character(program, statement))
    return Place((Slot(end, end, f"\n{indent_of(program.source, span.start)}{name} = "),))


def rebind_first(program: Program, function: cst.FunctionDef, name: str) -> Place | None:
    """A new assignment to `name` as the first statement of a function, after its docstring."""
    if not isinstance(function.body, cst.IndentedBlock):
        return None
    first = function.body.body[0]
    if function.get_docstring() is not None:
        return rebind_after(program, first, name)
    start = program.span(first).start
    return Place((Slot(start, start, f"{name} = ", f"\n{indent_of(program.source, start)}"),))


def end_of(program: Program, node: cst.CSTNode) -> int:
    """Where an expression ends, its closing parentheses included."""
    end = program.span(node).end
    for _ in getattr(node, "rpar", ()):
        end = program.source.index(")", end) + 1
    return end


def last_character(program: Program, statement: cst.CSTNode) -> int:
    """Where a statement ends, its inner blocks included."""
    ends = [program.span(statement).end] if isinstance(statement, cst.SimpleStatementLine) else []
    stack = [statement]
    while stack:
        node = stack.pop()
        for block in (getattr(node, n, None) for n in ("body", "orelse", "finalbody")):
            if isinstance(block, cst.CSTNode):
                stack.append(block)
            elif isinstance(block, list | tuple):
                stack += block
        stack += getattr(node, "handlers", ())
        if isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            ends.append(program.span(node).end)
    return max(ends)


def _removal(program: Program, arg: cst.Arg) -> Edit:
    start, end = program.span(arg)
    rest = program.source[end:]
    stripped = rest.lstrip()
    if stripped.startswith(","):
        end += len(rest) - len(stripped) + 1
    return Edit(start, end, "")


def _after_last_argument(program: Program, call: cst.Call, prefix: str) -> Slot:
    if call.args:
        end = program.span(call.args[-1]).end
        return Slot(end, end, f", {prefix}")
    end = program.span(call).end - 1
    return Slot(end, end, prefix)


def _option_in_mapping(program: Program, arg: cst.Arg, name: str) -> Value:
    """An option of a call that passes `**mapping`: replaced in a literal mapping, else merged over it."""
    if isinstance(arg.value, cst.Dict):
        for element in arg.value.elements:
            if isinstance(element, cst.DictElement) and string_value(element.key) == name:
                return value_at(program, element.value)
    start, end = program.span(arg.value)
    return Value(None, Place((Slot(end, end, f', "{name}": ', "}"),), extra=(Edit(start, start, "{**"),)))


def string_value(node: cst.CSTNode) -> str | None:
    """The value of a plain string literal, or None."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None

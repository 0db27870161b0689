"""Sums about the first value of a row in the place of running means: two sums of differences instead of a mean that
moves. It loses digits where a row begins far from its mean; gates decide."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, argument, descendants
from islands.operators.structural.carried import reads_of
from islands.operators.structural.falling_masks import is_fixed, only_falls, summands
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.kernels import Loop
from islands.operators.structural.names import bindings
from islands.operators.structural.places import last_character
from islands.operators.structural.text import Edit, indent_of
from islands.operators.structural.welford import Update, Welford, resolved

UPDATE = """\
@triton.jit
def {name}(value, total, squares, weight, first, step):
    delta = value - first
    return total + delta, squares + delta * delta, tl.full(weight.shape, step + 1, weight.dtype)


"""
JOIN = """\
@triton.jit
def {name}(total, squares, weight, dim: tl.constexpr, first):
    n_values = tl.sum(weight, dim)
    whole = tl.sum(total, dim)
    centre = whole / tl.maximum(n_values, 1.0)
    m2 = tl.sum(squares, dim) - whole * centre
    return tl.sum(first, dim) + centre, tl.where(m2 < 0.0, 0.0, m2), n_values


"""


class First(NamedTuple):
    """The first value that an update takes of a row, as text for before its loop, and where its lanes are combined."""

    update: Update
    load: str
    join: cst.Call


def first_values(program: Program, site: Welford) -> list[First] | None:
    """The first values of all updates of a kernel; None where one is no plain load, or something else is combined."""
    kernel = program.kernels[site.kernel]
    found = [_first(program, kernel, site, update) for update in site.updates]
    firsts = [first for first in found if first is not None]
    return firsts if firsts and len(firsts) == len(found) == len(site.joins) else None


def edits_about_first(program: Program, first: First, update: str, join: str, step: str) -> list[Edit]:
    """The load above the loop, and calls of the functions named `update` and `join` that get it too."""
    call, at = first.update.call, program.span(first.update.loop.node).start
    name = fresh_name(program, f"{program.text(call.args[1].value)}_first")
    last = program.span(first.join.args[3])
    return [
        Edit(at, at, f"{name} = {first.load}\n{indent_of(program.source, at)}"),
        Edit(*program.span(call.func), update),
        Edit(*program.span(call.args[4].value), f"{name}, {step}"),
        Edit(*program.span(first.join.func), join),
        Edit(last.end, last.end, f", {name}"),
    ]


def _first(program: Program, kernel: Scope, site: Welford, update: Update) -> First | None:
    state = [program.text(a.value) for a in update.call.args[1:4]]
    joins = [j for j in site.joins if not update.is_group and [program.text(a.value) for a in j.args[:3]] == state]
    value = resolved(program, kernel, update.call.args[0].value)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "to":
        value = value.func.value
    if (
        len(joins) != 1
        or _is_read_beside(program, kernel, update.loop, state, joins[0])
        or not isinstance(value, cst.Call)
        or program.device_call(value) != "load"
    ):
        return None
    pointer = _at_first(program, kernel, update.loop, argument(value, 0, "pointer"))
    mask = _of_rows(program, kernel, update.loop, argument(value, 1, "mask"))
    if pointer is None or mask is None:
        return None
    masked = f", {mask}, other=0.0" if mask else ""
    return First(update, f"tl.load({pointer}{masked}).to(tl.float32)", joins[0])


def _is_read_beside(program: Program, kernel: Scope, loop: Loop, state: list[str], join: cst.Call) -> bool:
    """Whether something else than the call that combines lanes reads a mean or an m2 after the loop."""
    end, inside = last_character(program, loop.node), set(map(id, descendants(join)))
    later = [n for name in state[:2] for n in reads_of(program, kernel, name) if program.span(n).start >= end]
    return any(id(n) not in inside for n in later)


def _at_first(program: Program, kernel: Scope, loop: Loop, pointer: cst.BaseExpression | None) -> str | None:
    """A pointer with 0 for the name that is the loop's offset plus lanes; None where more than that depends on them."""
    if pointer is None:
        return None
    names = [n for n in descendants(pointer) if isinstance(n, cst.Name)]
    moving = [n for n in names if not is_fixed(program, kernel, loop, n)]
    if len(moving) != 1 or _is_bound_in(program, kernel, loop, [n for n in names if n is not moving[0]]):
        return None
    terms = summands(program, kernel, loop, moving[0])
    lanes = [t for t in terms if program.text(t) != loop.target]
    if len(terms) != 2 or len(lanes) != 1 or not _starts_from_zero(program, kernel, lanes[0]):
        return None
    start, (low, high) = program.span(pointer).start, program.span(moving[0])
    text = program.source[slice(*program.span(pointer))]
    return f"{text[: low - start]}0{text[high - start :]}"


def _starts_from_zero(program: Program, kernel: Scope, node: cst.CSTNode) -> bool:
    """Whether lanes are `tl.arange(0, ...)[None, :]`."""
    value = resolved(program, kernel, node) if isinstance(node, cst.BaseExpression) else node
    return program.text(value).replace(" ", "").startswith("tl.arange(0,")


def _is_bound_in(program: Program, kernel: Scope, loop: Loop, names: list[cst.Name]) -> bool:
    found = [b for n in names for b in bindings(program, kernel).get(n.value, [])]
    return any(loop.node in program.ancestors(b.statement) for b in found)


def _of_rows(program: Program, kernel: Scope, loop: Loop, node: cst.BaseExpression | None) -> str | None:
    """The parts of a mask that are bound before the loop, joined; "" for none. The first value of a row is in it."""
    if isinstance(node, cst.IfExp):  # `None if EVEN else mask`
        node = node.orelse
    if node is None or program.text(node) == "None":
        return ""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        parts = [_of_rows(program, kernel, loop, side) for side in (node.left, node.right)]
        return None if None in parts else " & ".join(part for part in parts if part)
    if not isinstance(node, cst.Name) or not only_falls(program, kernel, loop, node):
        return None
    return "" if _is_bound_in(program, kernel, loop, [node]) else node.value

"""What a kernel does with its program ids, its loops and its tile parameters."""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, names_in
from islands.operators.structural.names import Binding, bindings, names_computed_from

_SHAPED = frozenset(
    ["arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor", "reshape", "view", "broadcast_to"]
)
_TILE_NAME = re.compile(r"block|tile|chunk|rows|per_program|split", re.IGNORECASE)
_RANGES = {"builtins.range": "range", "range": "range", "range_constexpr": "range"}


class TileUse(NamedTuple):
    """How a kernel uses a compile-time parameter."""

    is_shape: bool  # a tile has this extent
    is_step: bool  # a loop strides by it
    times_program: bool  # multiplied with a program id: the grid must follow
    is_group: bool  # only the order of programs depends on it

    @property
    def is_tile(self) -> bool:
        return self.is_shape or self.is_step or self.times_program or self.is_group

    @property
    def is_elastic(self) -> bool:
        """Any size is right: a loop or the grid covers the rest."""
        return self.is_step or self.times_program or self.is_group


class Loop(NamedTuple):
    """`for target in range(start, stop, step)`, with `range` as Python, `tl.range` or `tl.static_range`."""

    node: cst.For
    call: cst.Call
    kind: str  # "range", "tl.range", "tl.static_range"
    target: str
    start: cst.BaseExpression | None
    stop: cst.BaseExpression
    step: cst.BaseExpression | None


def program_id_calls(program: Program, kernel: Scope, axis: int | None = None) -> list[cst.Call]:
    """The `tl.program_id(axis)` calls of a kernel; those of every axis when none is given."""
    calls = program.device_calls(kernel, "program_id")
    return [c for c in calls if axis is None or axis_of(c) == axis]


def axis_of(call: cst.Call) -> int | None:
    """The literal axis of a `program_id` or `num_programs` call."""
    if len(call.args) != 1 or not isinstance(call.args[0].value, cst.Integer):
        return None
    return int(call.args[0].value.value)


def program_names(program: Program, kernel: Scope) -> set[str]:
    """The names whose value depends on the program id."""
    reading = _reading_program_id(program, kernel)

    def reads_program_id(binding: Binding) -> bool:
        return id(binding.statement) in reading and not isinstance(binding.statement, cst.For)

    def compute() -> set[str]:
        direct = names_computed_from(program, kernel, reads_program_id)
        loops = {loop.target for loop in loops_of(program, kernel) if _touches(loop.call, reading, direct)}
        return direct | names_computed_from(program, kernel, lambda b: bool(b.sources & loops)) | loops

    return program.derived(("program_names", id(kernel)), compute)


def _reading_program_id(program: Program, kernel: Scope) -> set[int]:
    """The ids of the nodes of a program that hold a `tl.program_id` of this kernel."""

    def compute() -> set[int]:
        calls = program_id_calls(program, kernel)
        return {id(node) for call in calls for node in (call, *program.ancestors(call))}

    return program.derived(("reading program_id", id(kernel)), compute)


def loops_of(program: Program, kernel: Scope) -> list[Loop]:
    """The counted loops of a kernel, in order of the text."""

    def compute() -> list[Loop]:
        return [loop for node in kernel.all(cst.For) if (loop := _loop(program, node)) is not None]

    return program.derived(("loops", id(kernel)), compute)


def tile_uses(program: Program, kernel: Scope) -> dict[str, TileUse]:
    """How each compile-time parameter of a kernel is used; parameters that are no tiles left out."""

    def compute() -> dict[str, TileUse]:
        uses = {p.name: _tile_use(program, kernel, p.name) for p in kernel.parameters if p.is_constexpr}
        return {name: use for name, use in uses.items() if use.is_tile}

    return program.derived(("tiles", id(kernel)), compute)


def is_row_kernel(program: Program, kernel: Scope) -> bool:
    """A tile has one dimension only."""
    uses = tile_uses(program, kernel)
    return sum(u.is_shape for u in uses.values()) <= 1 and not program.device_calls(kernel, "dot", "dot_scaled")


def has_return(kernel: Scope) -> bool:
    return bool(kernel.all(cst.Return))


def helper_calls(program: Program, kernel: Scope) -> list[cst.Call]:
    """Calls of other jit functions of the same source."""
    return [c for c in kernel.all(cst.Call) if isinstance(c.func, cst.Name) and c.func.value in program.kernels]


def _loop(program: Program, node: cst.For) -> Loop | None:
    call = node.iter
    if not isinstance(call, cst.Call) or not isinstance(node.target, cst.Name) or node.orelse is not None:
        return None
    device = program.device_call(call)
    kind = f"tl.{device}" if device in ("range", "static_range") else _RANGES.get(program.qualified(call.func), "")
    plain = [a.value for a in call.args if a.keyword is None and not a.star]
    if not kind or not 1 <= len(plain) <= 3:
        return None
    start = plain[0] if len(plain) > 1 else None
    return Loop(node, call, kind, node.target.value, start, plain[min(1, len(plain) - 1)], (plain + [None] * 3)[2])


def _touches(node: cst.CSTNode, reading: set[int], names: set[str]) -> bool:
    return id(node) in reading or not names.isdisjoint(names_in(node))


def _tile_use(program: Program, kernel: Scope, name: str) -> TileUse:
    shaped = [c for c in kernel.all(cst.Call) if program.device_call(c) in _SHAPED]
    is_shape = any(name in names_in(c) for c in shaped)
    is_step = any(_strides_by(program, kernel, loop, name) for loop in loops_of(program, kernel))
    is_group = not is_shape and not is_step and _orders_programs(program, kernel, name)
    may_number = is_shape or is_step or _TILE_NAME.search(name) is not None
    times_program = _times_program(program, kernel, name) or _given_to_helper(program, kernel, name)
    return TileUse(is_shape, is_step, times_program and may_number and not is_group, is_group)


def _orders_programs(program: Program, kernel: Scope, name: str) -> bool:
    """Whether a parameter is the size of a group of programs, as in `min(n_m - first_m, GROUP_M)` or `tl.swizzle2d`."""
    functions = ("minimum", "swizzle2d")
    calls = [c for c in kernel.all(cst.Call) if program.device_call(c) in functions or program.text(c.func) == "min"]
    return "GROUP" in name.upper() and any(name in names_in(c) for c in calls)


def _strides_by(program: Program, kernel: Scope, loop: Loop, name: str) -> bool:
    """Whether a name is the step of a loop, or the divisor of its bound as in `range(tl.cdiv(n, BLOCK))`."""
    if loop.step is not None and name in names_in(loop.step):
        return True
    bounds = [b.value for n in names_in(loop.stop) for b in bindings(program, kernel).get(n, []) if b.value is not None]
    divisors = [d for bound in (loop.stop, *bounds) for d in _divisors(bound)]
    return any(name in names_in(d) for d in divisors)


def _divisors(bound: cst.CSTNode) -> list[cst.CSTNode]:
    """What a number of tiles was divided by: B of `tl.cdiv(n, B)` and of `(n + B - 1) // B`, with terms around it."""
    if isinstance(bound, cst.Call) and len(bound.args) == 2:
        return [bound.args[1].value]
    if not isinstance(bound, cst.BinaryOperation):
        return []
    if isinstance(bound.operator, cst.FloorDivide):
        return [bound.right]
    is_sum = isinstance(bound.operator, cst.Add | cst.Subtract)
    return [*_divisors(bound.left), *_divisors(bound.right)] if is_sum else []


def _times_program(program: Program, kernel: Scope, name: str) -> bool:
    """Whether a product has the parameter on one side and something of the program id on the other."""
    if program.device_calls(kernel, "num_programs"):
        return False  # the kernel strides over the grid, whatever its size
    names = program_names(program, kernel)
    reading = _reading_program_id(program, kernel)
    for product in kernel.all(cst.BinaryOperation):
        if not isinstance(product.operator, cst.Multiply):
            continue
        for one, other in ((product.left, product.right), (product.right, product.left)):
            if name in names_in(one) and _touches(other, reading, names):
                return True
    return False


def _given_to_helper(program: Program, kernel: Scope, name: str) -> bool:
    names = program_names(program, kernel)
    return any(name in names_in(c) and names_in(c) & names for c in helper_calls(program, kernel))

"""A loop done in shares by several programs: a new kernel leaves each share's accumulators in a workspace, and the old
kernel, with the same grid as before, joins them instead of looping and goes on from there.

Shares are joined in one order, so the result is the same in every run; atomics would not promise that.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.accesses import accesses_of
from islands.operators.structural.analysis import Launch, Program, Scope, argument, integer
from islands.operators.structural.carried import Accumulator, Carried, carried_by, reads_of
from islands.operators.structural.grids import axes_of, constant_text, grid_components, is_plain_kernel
from islands.operators.structural.kernels import Loop, has_return, helper_calls, loops_of, tile_uses
from islands.operators.structural.launches import is_statement
from islands.operators.structural.names import bindings
from islands.operators.structural.places import last_character

_MOST_AXES = 3
_WRITES = ("store", "device_print", "device_assert", "debug_barrier", "inline_asm_elementwise")
SHARE_END = "share_end"  # a loop that ends there is a share already
_BRANCHES = (cst.If, cst.While, cst.With, cst.Break, cst.Continue)


class Partial(NamedTuple):
    """What a share leaves of one accumulator: the tile itself, or its reduction where nothing else is read of it."""

    accumulator: Accumulator
    reductions: tuple[cst.Call, ...]  # after the loop, all alike; empty: the tile is kept whole
    shape: tuple[str, ...]


class ShareSite(NamedTuple):
    """A loop of a kernel with a grid of `rank` axes."""

    kernel: str
    loop: Loop
    carried: Carried
    partials: tuple[Partial, ...]
    rank: int

    @property
    def is_product(self) -> bool:
        return any(a.is_product for a in self.carried.accumulators)


def share_sites(program: Program) -> list[ShareSite]:
    """The loops of a program whose iterations can be shared out, the first such loop of each kernel."""

    def compute() -> list[ShareSite]:
        if not (program.alias("triton.language") and program.alias("torch")):
            return []
        kernels = [k for k in program.kernels.values() if program.launches_of(k) and is_plain_kernel(k)]
        return [site for kernel in kernels if (site := _site(program, kernel)) is not None]

    return program.derived("shares", compute)


def _site(program: Program, kernel: Scope) -> ShareSite | None:
    loop = _loop(program, kernel)
    carried = carried_by(program, kernel, loop) if loop is not None else None
    if loop is None or carried is None or _is_called(program, kernel):
        return None
    partials = tuple(_partial(program, kernel, loop, a) for a in carried.accumulators)
    launches = program.launches_of(kernel)
    axes = axes_of(program, kernel) if program.device_calls(kernel, "program_id", "num_programs") else [-1]
    ranks = {len(grid_components(program, launch) or []) for launch in launches}
    if axes is None or len(ranks) != 1 or not axes[-1] < min(ranks) <= _MOST_AXES:
        return None
    extents = {e for p in partials for e in p.shape if not e.isdigit()}
    if not all(_is_plain_launch(program, launch, extents) for launch in launches):
        return None
    return ShareSite(kernel.name, loop, carried, partials, ranks.pop())


def _loop(program: Program, kernel: Scope) -> Loop | None:
    """The first loop of a kernel that is not unrolled, where it stands directly in the body, has no branches, and
    nothing is written before its end."""
    loop = next((loop for loop in loops_of(program, kernel) if loop.kind != "tl.static_range"), None)
    if loop is None or program.parents.get(loop.node) is not cast(cst.FunctionDef, kernel.node).body:
        return None
    start, end = program.span(loop.node).start, last_character(program, loop.node)
    is_share = isinstance(loop.stop, cst.Name) and loop.stop.value.startswith(SHARE_END)
    is_forward = loop.step is None or isinstance(loop.step, cst.Name | cst.Integer)
    if is_share or not is_forward or not isinstance(loop.node.body, cst.IndentedBlock):
        return None
    branches = [n for kind in _BRANCHES for n in kernel.all(kind)]
    if any(start <= program.span(n).start < end for n in branches) or has_return(kernel):
        return None
    earlier = [n for n in kernel.all(cst.For) if program.span(n).start < start]
    if any(loop.node in earlier for loop in loops_of(program, kernel) if loop.kind != "tl.static_range"):
        return None
    return loop if not any(program.span(c).start < end for c in _writes(program, kernel)) else None


def _writes(program: Program, kernel: Scope) -> list[cst.Call]:
    """The calls of a kernel that do more than answer, and those of helpers that make such calls."""
    helpers = {id(c): cast(cst.Name, c.func).value for c in helper_calls(program, kernel)}
    writing = {name for name, k in program.kernels.items() if any(_is_write(program, c) for c in k.all(cst.Call))}
    calling = {name for name, k in program.kernels.items() if helper_calls(program, k)}
    return [c for c in kernel.all(cst.Call) if _is_write(program, c) or helpers.get(id(c)) in writing | calling]


def _is_write(program: Program, call: cst.Call) -> bool:
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    name = program.device_call(call) or method
    return name in _WRITES or name.startswith("atomic_")


def _is_called(program: Program, kernel: Scope) -> bool:
    """Whether another kernel calls this one, which is about to get more parameters."""
    return any(
        isinstance(c.func, cst.Name) and c.func.value == kernel.name
        for s in program.kernels.values()
        for c in s.all(cst.Call)
    )


def _is_plain_launch(program: Program, launch: Launch, extents: set[str]) -> bool:
    """Whether a launch is a statement of its own, with every compile-time parameter within reach."""
    tiles = {*tile_uses(program, cast(Scope, launch.kernel)), *extents}
    known = all(constant_text(program, launch, name) is not None for name in tiles)
    has_star = any(a.star == "*" for a in launch.call.args)
    return is_statement(program, launch) and known and not has_star and bool(device_text(program, launch))


def device_text(program: Program, launch: Launch) -> str:
    """The device of a tensor that a launch hands to a kernel that loads from it, as text; empty where none is plain."""
    kernel = cast(Scope, launch.kernel)
    names = [a.tensor for a in accesses_of(program, kernel) if a.tensor in launch.arguments]
    values = [launch.arguments[name].value for name in names]
    plain = [program.text(v) for v in values if isinstance(v, cst.Name | cst.Attribute | cst.Subscript)]
    return f"{plain[0]}.device" if plain else ""


def _partial(program: Program, kernel: Scope, loop: Loop, accumulator: Accumulator) -> Partial:
    whole = Partial(accumulator, (), accumulator.initial.shape)
    end = last_character(program, loop.node)
    later = [n for n in reads_of(program, kernel, accumulator.name) if program.span(n).start >= end]
    rebound = [b for b in bindings(program, kernel).get(accumulator.name, []) if program.span(b.statement).start >= end]
    if rebound or not later or not accumulator.initial.shape or accumulator.factor_index is not None:
        return whole
    calls = [_reduction_of(program, n, accumulator.kind) for n in later]
    texts = {program.text(c) for c in calls if c is not None}
    axis = argument(calls[0], 1, "axis") if calls[0] is not None else None
    at = integer(axis)
    if len(texts) != 1 or None in calls or at is None or at >= len(whole.shape):
        return whole
    rest = whole.shape[:at] + whole.shape[at + 1 :]
    return Partial(accumulator, tuple(c for c in calls if c is not None), rest)


def _reduction_of(program: Program, node: cst.Name, kind: str) -> cst.Call | None:
    """The call `tl.sum(name, axis=...)` around a name, for an accumulator of that kind."""
    arg = program.parents[node]
    call = program.parents[arg]
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call) or program.device_call(call) != kind:
        return None
    return call if len(call.args) == 2 and call.args[0] is arg and arg.keyword is None else None

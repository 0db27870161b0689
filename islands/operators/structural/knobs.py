"""Knobs: values that any program of a family has, under a key that its relatives share.

A retune sets some; the crossover takes each from either parent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, integer
from islands.operators.structural.kernels import Loop, TileUse, is_row_kernel, loops_of, tile_uses
from islands.operators.structural.names import bindings
from islands.operators.structural.places import Place, Value, call_option, value_at
from islands.operators.structural.text import Edit, Span
from islands.operators.structural.tiles import tile_value


class KnobKind(StrEnum):
    WARPS = "num_warps"
    STAGES = "num_stages"
    REGISTERS = "maxnreg"
    TILE = "tile"
    CONSTANT = "constant"
    LOOP = "loop"
    HINT = "hint"


class TileShape(StrEnum):
    """What a kernel computes on."""

    ROW = "row"  # tiles of one dimension
    GRID = "grid"  # of two
    PRODUCT = "product"  # of two, fed to tensor cores


class Knob(NamedTuple):
    """A value with a place. `key` is equal in programs that share structure."""

    kind: KnobKind
    key: str
    kernel: str  # empty for a constant of the host code
    parameter: str
    text: str | None  # what is written today; None: nothing, or nothing that could be read
    place: Place
    use: TileUse | None = None
    shape: TileShape = TileShape.ROW

    @property
    def literal(self) -> int | None:
        """The integer that is written today, if it is one."""
        return int(self.text) if self.text is not None and self.text.isdigit() else None


# Options of one call that change nothing about the result.
LAUNCH_OPTIONS = {"num_warps": KnobKind.WARPS, "num_stages": KnobKind.STAGES, "maxnreg": KnobKind.REGISTERS}
LOOP_OPTIONS = ("num_stages", "loop_unroll_factor", "flatten", "warp_specialize", "disable_licm")
CALL_OPTIONS = {
    "load": ("eviction_policy", "cache_modifier"),
    "store": ("eviction_policy", "cache_modifier"),
    "dot": ("input_precision",),
}


def knobs_of(program: Program) -> list[Knob]:
    """Every knob of a program, each place once, in an order that depends on the source alone."""
    return program.derived("knobs", lambda: _distinct([*launch_knobs(program), *constant_knobs(program)]))


def kernel_knobs(program: Program, kernel: str) -> list[Knob]:
    """Those of `knobs_of` that belong to a kernel."""
    return program.derived(("knobs", kernel), lambda: [k for k in knobs_of(program) if k.kernel == kernel])


def hint_knobs(program: Program) -> list[Knob]:
    """The options of loops, loads, stores and products: what the crossover takes beside `knobs_of`."""
    return program.derived("hints", lambda: [k for name in program.kernels for k in _hints(program, name)])


def launch_knobs(program: Program) -> list[Knob]:
    """Options and tiles of every launch."""
    knobs: list[Knob] = []
    for launch in program.launches:
        if launch.kernel is not None and _is_autotuned(program, launch.kernel):
            continue
        for option, kind in LAUNCH_OPTIONS.items():
            text, place = call_option(program, launch.call, option)
            key = f"{launch.key}/{option}"
            knobs.append(Knob(kind, key, launch.kernel_name, option, text, place, shape=_tile_shape(program, launch)))
        knobs += _tile_knobs(program, launch)
    return knobs


def constant_knobs(program: Program) -> list[Knob]:
    """Integers that host code binds once to a name in upper case, and integer defaults of the entry."""
    nodes: list[tuple[str, cst.BaseExpression | None]] = []
    for scope in program.scopes:
        if not scope.is_kernel:
            local = bindings(program, scope)
            nodes += [(f"{scope.name}.{n}", b[0].value) for n, b in local.items() if n.isupper() and len(b) == 1]
    entries = [s for s in program.entry_scopes if s.name != "__init__"]
    nodes += [(f"{s.name}.{p.name}", p.default) for s in entries for p in s.parameters]
    literals = [(name, constant_literal(program, node)) for name, node in nodes]
    values = [(name, value_at(program, node)) for name, node in literals if node is not None]
    return [
        Knob(KnobKind.CONSTANT, f"constant/{name}", "", name.rpartition(".")[2], value.text, value.place)
        for name, value in values
    ]


def constant_literal(program: Program, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """The integer literal that an expression is, or that it wraps as in `tl.constexpr(8)`."""
    if isinstance(node, cst.Call) and program.qualified(node.func).endswith(".constexpr") and len(node.args) == 1:
        node = node.args[0].value
    return node if integer(node) is not None else None


def _tile_knobs(program: Program, launch: Launch) -> list[Knob]:
    if launch.kernel is None:
        return []
    knobs: list[Knob] = []
    for name, use in tile_uses(program, launch.kernel).items():
        value = tile_value(program, launch, name, use.times_program) if use.is_elastic else None
        if value is not None:
            key = f"{launch.key}/{name}"
            shape = _tile_shape(program, launch)
            knobs.append(Knob(KnobKind.TILE, key, launch.kernel_name, name, value.text, value.place, use, shape))
    return knobs


def _tile_shape(program: Program, launch: Launch) -> TileShape:
    if launch.kernel is None or is_row_kernel(program, launch.kernel):
        return TileShape.ROW
    return TileShape.PRODUCT if program.device_calls(launch.kernel, "dot", "dot_scaled") else TileShape.GRID


def _is_autotuned(program: Program, kernel: Scope) -> bool:
    node = cast(cst.FunctionDef, kernel.node)
    decorators = [d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator for d in node.decorators]
    return any(program.qualified(d).endswith(".autotune") for d in decorators)


def _hints(program: Program, kernel_name: str) -> list[Knob]:
    kernel = program.kernels[kernel_name]
    knobs: list[Knob] = []
    for i, loop in enumerate(loops_of(program, kernel)):
        if loop.kind != "tl.static_range":
            knobs += [_hint(KnobKind.LOOP, f"loop{i}", kernel, o, loop_option(program, loop, o)) for o in LOOP_OPTIONS]
    for function, options in CALL_OPTIONS.items():
        for i, call in enumerate(program.device_calls(kernel, function)):
            site = f"{function}{i}"
            knobs += [_hint(KnobKind.HINT, site, kernel, o, call_option(program, call, o)) for o in options]
    return knobs


def _hint(kind: KnobKind, site: str, kernel: Scope, option: str, value: Value) -> Knob:
    return Knob(kind, f"{kernel.name}/{site}/{option}", kernel.name, option, value.text, value.place)


def loop_option(program: Program, loop: Loop, name: str) -> Value:
    """An option of `tl.range`; a loop over Python's `range` becomes one over `tl.range`."""
    value = call_option(program, loop.call, name)
    if loop.kind != "range":
        return value
    span = program.span(loop.call.func)
    device = program.alias("triton.language")
    return value._replace(place=value.place._replace(extra=(Edit(span.start, span.end, f"{device}.range"),)))


def _distinct(knobs: list[Knob]) -> list[Knob]:
    """The first knob of every place: launches that share a tile share its knob."""
    seen: set[tuple[Span, str]] = set()
    result: list[Knob] = []
    for knob in knobs:
        mark = (knob.place.anchor, knob.parameter if knob.text is None else "")
        if mark not in seen:
            seen.add(mark)
            result.append(knob)
    return result

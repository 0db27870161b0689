"""Knobs: values that any program of a family has, under a key that its relatives share.

A retune sets some; the crossover takes each from either parent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, integer
from islands.operators.structural.kernels import TileUse, is_row_kernel, loops_of, tile_uses
from islands.operators.structural.names import bindings
from islands.operators.structural.places import Place, call_option, value_at
from islands.operators.structural.text import Span
from islands.operators.structural.tiles import tile_value


class KnobKind(StrEnum):
    WARPS = "num_warps"
    STAGES = "num_stages"
    REGISTERS = "maxnreg"
    TILE = "tile"
    CONSTANT = "constant"
    LOOP = "loop"
    HINT = "hint"


class Knob(NamedTuple):
    """A value with a place. `key` is equal in programs that share structure."""

    kind: KnobKind
    key: str
    kernel: str  # empty for a constant of the host code
    parameter: str
    text: str | None  # what is written today; None: nothing, or nothing that could be read
    place: Place
    use: TileUse | None = None
    is_row: bool = True  # the kernel's tiles have one dimension
    may_quote: bool = False  # its values are strings

    @property
    def literal(self) -> int | None:
        """The integer that is written today, if it is one."""
        return int(self.text) if self.text is not None and self.text.isdigit() else None


# Options of one call that change nothing about the result.
LAUNCH_OPTIONS = {"num_warps": KnobKind.WARPS, "num_stages": KnobKind.STAGES, "maxnreg": KnobKind.REGISTERS}
LOOP_OPTIONS = ("num_stages", "loop_unroll_factor", "flatten", "warp_specialize")
ACCESS_OPTIONS = ("eviction_policy", "cache_modifier")


def knobs_of(program: Program) -> list[Knob]:
    """Every knob of a program, each place once, in an order that depends on the source alone."""
    return program.derived("knobs", lambda: _distinct([*launch_knobs(program), *constant_knobs(program)]))


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
            knobs.append(Knob(kind, key, launch.kernel_name, option, text, place, is_row=_is_row(program, launch)))
        knobs += _tile_knobs(program, launch)
    return knobs


def constant_knobs(program: Program) -> list[Knob]:
    """Integer constants of the module in upper case, and integer defaults of the entry."""
    nodes: list[tuple[str, cst.BaseExpression | None]] = [
        (name, local[0].value)
        for name, local in bindings(program, program.root).items()
        if name.isupper() and len(local) == 1
    ]
    nodes += [(p.name, p.default) for scope in program.entry_scopes for p in scope.parameters]
    values = [(name, value_at(program, node)) for name, node in nodes if node is not None and integer(node) is not None]
    return [Knob(KnobKind.CONSTANT, f"constant/{n}", "", n, v.text, v.place) for n, v in values]


def _tile_knobs(program: Program, launch: Launch) -> list[Knob]:
    if launch.kernel is None:
        return []
    knobs: list[Knob] = []
    for name, use in tile_uses(program, launch.kernel).items():
        value = tile_value(program, launch, name, use.times_program) if use.is_elastic else None
        if value is not None:
            key = f"{launch.key}/{name}"
            is_row = _is_row(program, launch)
            knobs.append(Knob(KnobKind.TILE, key, launch.kernel_name, name, value.text, value.place, use, is_row))
    return knobs


def _is_row(program: Program, launch: Launch) -> bool:
    return launch.kernel is None or is_row_kernel(program, launch.kernel)


def _is_autotuned(program: Program, kernel: Scope) -> bool:
    node = cast(cst.FunctionDef, kernel.node)
    decorators = [d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator for d in node.decorators]
    return any(program.qualified(d).endswith(".autotune") for d in decorators)


def _hints(program: Program, kernel_name: str) -> list[Knob]:
    kernel = program.kernels[kernel_name]
    knobs: list[Knob] = []
    for i, loop in enumerate(loops_of(program, kernel)):
        if loop.kind == "tl.range":
            knobs += _options(program, loop.call, f"{kernel_name}/loop{i}", kernel_name, LOOP_OPTIONS, KnobKind.LOOP)
    for access in ("load", "store"):
        for i, call in enumerate(program.device_calls(kernel, access)):
            key = f"{kernel_name}/{access}{i}"
            knobs += _options(program, call, key, kernel_name, ACCESS_OPTIONS, KnobKind.HINT)
    for i, call in enumerate(program.device_calls(kernel, "dot")):
        knobs += _options(program, call, f"{kernel_name}/dot{i}", kernel_name, ("input_precision",), KnobKind.HINT)
    return knobs


def _options(
    program: Program, call: cst.Call, key: str, kernel: str, names: tuple[str, ...], kind: KnobKind
) -> list[Knob]:
    values = [(name, call_option(program, call, name)) for name in names]
    return [Knob(kind, f"{key}/{name}", kernel, name, value.text, value.place) for name, value in values]


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

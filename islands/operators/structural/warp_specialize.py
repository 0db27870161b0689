"""warp_specialize: some warps of a program only load, others only multiply, so that neither waits for the other.

What compilers take, tried with Triton 3.7.1. For sm_100: any loop around `tl.dot`. For sm_90: loops whose tiles come in
by descriptors, in half precision, with accumulators of 64 rows and at most 128 columns and with four warps; with eight
the flag changes nothing, with more rows or with tiles loaded by pointers the compiler gives up.
"""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, descendants, keyword
from islands.operators.structural.carried import carried_by
from islands.operators.structural.choices import current_value
from islands.operators.structural.gpus import copies_tiles, has_tensor_memory
from islands.operators.structural.kernels import Loop
from islands.operators.structural.knobs import launch_knobs, loop_option
from islands.operators.structural.loop_pipeline import loop_sites
from islands.operators.structural.technique import Context, Observed, Rewrite, Technique
from islands.operators.structural.text import Edit

_ROWS, _MOST_COLUMNS, _WARPS = 64, 128, 4


class ProductLoop(NamedTuple):
    """A loop around products. `descriptors` are those that its tiles come in by, `optional` those of them that may be
    absent at a launch; `has_pointers`: some tile comes in by pointers wherever it runs."""

    kernel: str
    loop: Loop
    rows: str  # extents of the accumulators
    columns: str
    descriptors: tuple[str, ...]
    optional: tuple[str, ...]
    has_pointers: bool


class WarpSpecialize(Technique[ProductLoop]):
    """`tl.range(..., warp_specialize=True)`, with the warps and the tile that the compiler needs for it."""

    name = "warp_specialize"
    prior = 0.02
    citation = "tl.range(warp_specialize), https://triton-lang.org/main/python-api/generated/triton.language.range.html"
    cost = 2.0

    def sites(self, program: Program) -> list[ProductLoop]:
        found = [_product_loop(program, program.kernels[s.kernel], s.loop) for s in loop_sites(program)]
        return [site for site in found if site is not None]

    def rewrite(self, context: Context, site: ProductLoop) -> Rewrite | None:
        program, observed, _ = context
        line = program.line_of(program.span(site.loop.node).start)
        detail = f"warp_specialize for the loop in line {line} of {site.kernel}"
        if has_tensor_memory(observed):
            return Rewrite(loop_option(program, site.loop, self.name).place.set("True"), detail)
        if not copies_tiles(observed) or site.has_pointers or not site.descriptors:
            return None
        wanted = {site.rows: _ROWS, site.columns: _MOST_COLUMNS, "num_warps": _WARPS}
        fitted = [_fitted(program, observed, site, name, value) for name, value in wanted.items()]
        if any(edits is None for edits in fitted):
            return None
        flag = " and ".join(f"{name} is not None" for name in site.optional) or "True"
        option = loop_option(program, site.loop, self.name).place.set(flag)
        return Rewrite((*option, *(e for edits in fitted if edits for e in edits)), detail)


def _product_loop(program: Program, kernel: Scope, loop: Loop) -> ProductLoop | None:
    calls = [n for n in descendants(loop.node) if isinstance(n, cst.Call)]
    products = [c for c in calls if program.device_call(c) == "dot"]
    carried = carried_by(program, kernel, loop) if products and program.launches_of(kernel) else None
    tiles = {a.initial.shape for a in carried.accumulators if a.is_product} if carried is not None else set()
    is_exact = any(keyword(c, "input_precision") is not None for c in products)  # said of float32 alone
    if len(tiles) != 1 or is_exact or keyword(loop.call, "warp_specialize") is not None:
        return None
    described = {name: _condition(program, c) for c in calls if (name := _descriptor_of(kernel, c))}
    optional = [n for n, condition in described.items() if condition == f"{n} is not None"]
    loads = [_condition(program, c) for c in calls if program.device_call(c) == "load"]
    has_pointers = any(condition not in [f"{n} is not None" for n in optional] for condition in loads)
    rows, columns = tiles.pop()
    return ProductLoop(kernel.name, loop, rows, columns, tuple(described), tuple(optional), has_pointers)


def _descriptor_of(kernel: Scope, call: cst.Call) -> str:
    """The name of `name.load([row, column])`, or the empty string."""
    is_load = isinstance(call.func, cst.Attribute) and call.func.attr.value == "load" and len(call.args) == 1
    if not is_load or not isinstance(call.args[0].value, cst.List) or not isinstance(call.func, cst.Attribute):
        return ""
    owner = call.func.value
    return owner.value if isinstance(owner, cst.Name) and kernel.parameter(owner.value) is not None else ""


def _condition(program: Program, call: cst.Call) -> str:
    """What an expression with two branches around a call asks; empty where there is none."""
    around = next((a for a in program.ancestors(call) if isinstance(a, cst.IfExp | cst.BaseSmallStatement)), None)
    return program.text(around.test) if isinstance(around, cst.IfExp) else ""


def _fitted(program: Program, observed: Observed, site: ProductLoop, name: str, wanted: int) -> tuple[Edit, ...] | None:
    """The edits that give a tile or the warps what the compiler takes; None where that is known to be impossible."""
    is_limit = name == site.columns

    def fits(value: int | None) -> bool:
        return value == wanted or (is_limit and (value is None or value < wanted))

    if name.isdigit():
        return () if fits(int(name)) else None
    knobs = [k for k in launch_knobs(program) if k.kernel == site.kernel and k.parameter == name]
    if not knobs:
        return () if fits(observed.value(site.kernel, name)) else None
    unfit = [knob for knob in knobs if not fits(current_value(knob, observed))]
    return tuple(edit for knob in unfit for edit in knob.place.set(str(wanted)))

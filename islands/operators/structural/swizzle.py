"""swizzle: programs of a two-dimensional grid in groups, so that those that run together share what they read."""

from __future__ import annotations

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.grids import axes_of, first_line, fresh_name, replace_program_ids
from islands.operators.structural.persistent import KernelSite
from islands.operators.structural.places import value_at
from islands.operators.structural.technique import Context, Rewrite, Technique

_GROUPS = (2, 4, 8, 16, 32)


class Swizzle(Technique[KernelSite]):
    """Renumbers the programs of axes 0 and 1 with `tl.swizzle2d`; where that stands already, draws another group."""

    name = "swizzle"
    prior = 0.02
    citation = (
        "L2 cache optimisation, https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html"
    )

    def sites(self, program: Program) -> list[KernelSite]:
        kernels = program.kernels.items()
        return [
            KernelSite(n) for n, k in kernels if program.launches_of(k) and axes_of(program, k) in ([0, 1], [0, 1, 2])
        ]

    def rewrite(self, context: Context, site: KernelSite) -> Rewrite | None:
        program, _, rng = context
        kernel = program.kernels[site.kernel]
        group = rng.choice(_GROUPS)
        detail = f"programs of {site.kernel} in groups of {group}"
        for call in program.device_calls(kernel, "swizzle2d"):
            if len(call.args) == 5 and isinstance(call.args[4].value, cst.Integer):
                return Rewrite(value_at(program, call.args[4].value).place.set(str(group)), detail)
        return _renumber(program, kernel, rng.choice(((0, 1), (1, 0))), group, detail)


def _renumber(program: Program, kernel: Scope, order: tuple[int, int], group: int, detail: str) -> Rewrite | None:
    device = program.alias("triton.language")
    names = {axis: fresh_name(program, f"program_{axis}") for axis in (0, 1)}
    ids = ", ".join(f"{device}.program_id({axis})" for axis in order)
    sizes = ", ".join(f"{device}.num_programs({axis})" for axis in order)
    targets = ", ".join(names[axis] for axis in order)
    top = first_line(program, kernel, [f"{targets} = {device}.swizzle2d({ids}, {sizes}, {group})"])
    if top is None or not device:
        return None
    return Rewrite((top, *replace_program_ids(program, kernel, names)), detail)

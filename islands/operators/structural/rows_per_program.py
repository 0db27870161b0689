"""rows_per_program: a program does several neighbours of the old grid in a loop, so that starting costs less and the
next loads can be in flight."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.grids import (
    above_kernel,
    axes_of,
    constant_name,
    fresh_name,
    grid_components,
    set_grid,
)
from islands.operators.structural.program_loop import (
    COUNT,
    add_arguments,
    add_parameters,
    as_tensor,
    can_loop,
    loop_over_programs,
)
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_ROWS = (2, 2, 4, 4, 8, 16)


class AxisSite(NamedTuple):
    """One axis of the grid of a kernel."""

    kernel: str
    axis: int


class RowsPerProgram(Technique[AxisSite]):
    """The number becomes a constant of the module, a knob from then on. A bound keeps the last program right."""

    name = "rows_per_program"
    prior = 0.04
    citation = "thread coarsening: Magni et al. 2013, https://doi.org/10.1145/2503210.2503268"
    cost = 2.0

    def sites(self, program: Program) -> list[AxisSite]:
        kernels = [k for k in program.kernels.values() if can_loop(program, k) and program.alias("triton")]
        return [AxisSite(k.name, axis) for k in kernels for axis in axes_of(program, k) or []]

    def rewrite(self, context: Context, site: AxisSite) -> Rewrite | None:
        program, _, rng = context
        rows = rng.choice(_ROWS)
        edits = _edits(program, program.kernels[site.kernel], site.axis, rows)
        return Rewrite(tuple(edits), f"{rows} programs of axis {site.axis} of {site.kernel} in one")


def _edits(program: Program, kernel: Scope, axis: int, rows: int) -> list[Edit]:
    device, host = program.alias("triton.language"), program.alias("triton")
    constant = constant_name(program, kernel, "ROWS")
    names = (f"{COUNT}_{axis}", "ROWS", f"index_{axis}", f"program_{axis}")
    count, size, index, program_id = (fresh_name(program, name) for name in names)
    pid = f"{device}.program_id({axis})"
    last = f"{device}.minimum({pid} * {size} + {size}, {count})"
    header = [
        f"for {index} in {device}.range({pid} * {size}, {last}):",
        f"    {program_id} = {as_tensor(program, index)}",
    ]
    edits = [
        above_kernel(program, kernel, f"{constant} = {rows}\n\n\n"),
        add_parameters(program, kernel, [f"{count}=1", f"{size}: {device}.constexpr = 1"]),
        *loop_over_programs(program, kernel, header, {axis: program_id}, {axis: count}),
    ]
    for launch in program.launches_of(kernel):
        grid = grid_components(program, launch) or []
        shrunk = [f"{host}.cdiv({g}, {constant})" if i == axis else g for i, g in enumerate(grid)]
        edits += (
            set_grid(program, launch, shrunk),
            add_arguments(program, launch, {count: grid[axis], size: constant}),
        )
    return edits

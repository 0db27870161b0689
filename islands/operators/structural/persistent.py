"""persistent: a grid of a few programs per multiprocessor; each strides over the old programs."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.gpus import n_multiprocessors
from islands.operators.structural.grids import above_kernel, constant_name, fresh_name, grid_components, set_grid
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

_PER_MULTIPROCESSOR = (1, 1, 2, 2, 4, 8, 16)


class KernelSite(NamedTuple):
    """One kernel."""

    kernel: str


class Persistent(Technique[KernelSite]):
    """The number of programs becomes a constant of the module, a knob from then on."""

    name = "persistent"
    prior = 0.02
    citation = "persistent threads: Gupta et al. 2012, https://doi.org/10.1109/InPar.2012.6339596"
    cost = 2.0

    def sites(self, program: Program) -> list[KernelSite]:
        return [KernelSite(name) for name, kernel in program.kernels.items() if can_stride(program, kernel)]

    def rewrite(self, context: Context, site: KernelSite) -> Rewrite | None:
        program, observed, rng = context
        n_programs = n_multiprocessors(observed) * rng.choice(_PER_MULTIPROCESSOR)
        edits = stride_over_grid(program, program.kernels[site.kernel], n_programs)
        return Rewrite(tuple(edits), f"{n_programs} programs stride over the grid of {site.kernel}")


def can_stride(program: Program, kernel: Scope) -> bool:
    """Whether the kernel's programs can be done by fewer, at every launch of it."""
    ranks = {len(grid_components(program, launch) or []) for launch in program.launches_of(kernel)}
    return len(ranks) == 1 and can_loop(program, kernel)


def stride_over_grid(program: Program, kernel: Scope, n_programs: int) -> list[Edit]:
    """The edits after which at most `n_programs` programs do the work of the grid, in turn."""
    device = program.alias("triton.language")
    launches = program.launches_of(kernel)
    axes = range(len(grid_components(program, launches[0]) or []))
    constant = constant_name(program, kernel, "PROGRAMS")
    counts = {axis: fresh_name(program, f"{COUNT}_{axis}") for axis in axes}
    ids = {axis: fresh_name(program, f"program_{axis}") for axis in axes}
    edits = [
        above_kernel(program, kernel, f"{constant} = {n_programs}\n\n\n"),
        add_parameters(program, kernel, [f"{c}=1" for c in counts.values()]),
        *loop_over_programs(program, kernel, _header(program, device, ids, counts), ids, counts),
    ]
    for launch in launches:
        grid = grid_components(program, launch) or []
        edits.append(set_grid(program, launch, [f"min({constant}, {' * '.join(grid)})"]))
        edits.append(add_arguments(program, launch, {counts[axis]: grid[axis] for axis in axes}))
    return edits


def _header(program: Program, device: str, ids: dict[int, str], counts: dict[int, str]) -> list[str]:
    """The loop over all old programs, and each axis' share of the running number."""
    index = fresh_name(program, "index")
    total = " * ".join(counts.values())
    lines = [f"for {index} in {device}.range({device}.program_id(0), {total}, {device}.num_programs(0)):"]
    rest = as_tensor(program, index)
    for axis in ids:
        lines.append(f"    {ids[axis]} = {rest}" + ("" if axis == len(ids) - 1 else f" % {counts[axis]}"))
        rest = f"({rest} // {counts[axis]})"
    return lines

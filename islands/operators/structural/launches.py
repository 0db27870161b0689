"""Lines of host code above a launch, and what a launch passes, as text for where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope
from islands.operators.structural.grids import constant_text, fresh_name
from islands.operators.structural.kernels import tile_uses
from islands.operators.structural.parts import children
from islands.operators.structural.text import Edit, indent_of


def is_statement(program: Program, launch: Launch) -> bool:
    """Whether a launch is a line of its own in an indented block, so that lines can be put above it."""
    around = list(program.ancestors(launch.call))[:3]
    kinds = (cst.Expr, cst.SimpleStatementLine, cst.IndentedBlock)
    matches = [isinstance(node, kind) for node, kind in zip(around, kinds, strict=False)]
    return len(matches) == 3 and all(matches) and len(list(children(around[1]))) == 1


def names_for_tiles(program: Program, launch: Launch) -> dict[str, str]:
    """New names for tiles that are written at a launch itself, by parameter: what else reads them can then follow."""
    tiles = [name for name in tile_uses(program, cast(Scope, launch.kernel)) if name in launch.arguments]
    values = {name: launch.arguments[name].value for name in tiles}
    written = [name for name, value in values.items() if not isinstance(value, cst.Name | cst.Attribute)]
    return {name: fresh_name(program, f"{name}_TILE") for name in written}


def above_launch(program: Program, launch: Launch, lines: Sequence[str], renamed: Mapping[str, str]) -> list[Edit]:
    """The edits that put lines above a launch, after assignments to the new names of tiles, which the launch uses."""
    values = {name: launch.arguments[tile].value for tile, name in renamed.items()}
    lines = [*(f"{name} = {program.text(value)}" for name, value in values.items()), *lines]
    at = program.span(program.parents[program.parents[launch.call]]).start
    indent = indent_of(program.source, at)
    above = Edit(at, at, "".join(f"{line}\n{indent}" for line in lines))
    return [above, *(Edit(*program.span(value), name) for name, value in values.items())]


def host_text(program: Program, launch: Launch, name: str, renamed: Mapping[str, str]) -> str:
    """A number of a kernel, its own literal or the name of a parameter, as text for where a launch stands; empty where
    the launch does not show it."""
    return name if name.isdigit() else renamed.get(name) or constant_text(program, launch, name) or ""

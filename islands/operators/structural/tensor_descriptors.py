"""tensor_descriptors: tiles of matrices come in by the tensor memory accelerator of Hopper and later.

One thread asks for a whole tile; no registers for pointers and masks, and the copy goes to shared memory by itself.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope
from islands.operators.structural.gpus import copies_tiles
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.launches import above_launch, host_text, is_statement, names_for_tiles
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit, line_end
from islands.operators.structural.tile_loads import Side, TileLoad, tile_loads

_CLASS = "triton.tools.tensor_descriptor.TensorDescriptor"


class DescribedSite(NamedTuple):
    """The loads of a kernel that a descriptor can do."""

    kernel: str
    loads: tuple[TileLoad, ...]


class TensorDescriptors(Technique[DescribedSite]):
    """`a_tiles.load([row, column]) if a_tiles is not None else tl.load(...)`. The host makes descriptors where bases
    and strides are multiples of 16 bytes and tiles fit, so every shape stays right. What lies beyond is zero."""

    name = "tensor_descriptors"
    prior = 0.02
    citation = "TensorDescriptor, https://triton-lang.org/main/getting-started/tutorials/09-persistent-matmul.html"
    cost = 2.0

    def sites(self, program: Program) -> list[DescribedSite]:
        if not program.alias("triton.language"):
            return []
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [site for kernel in kernels if (site := _site(program, kernel)) is not None]

    def rewrite(self, context: Context, site: DescribedSite) -> Rewrite | None:
        program, observed, _ = context
        if not copies_tiles(observed):
            return None
        kernel = program.kernels[site.kernel]
        names = _names(program, site)
        edits = [add_parameters(program, kernel, [f"{name}=None" for name in dict.fromkeys(names)])]
        edits += [_described(program, kernel, load, name) for load, name in zip(site.loads, names, strict=True)]
        known, importing = _descriptor_class(program)
        for launch in program.launches_of(kernel):
            renamed = names_for_tiles(program, launch)
            lines = [
                f"{name} = {_descriptor(program, launch, load, known, renamed)}"
                for name, load in dict(zip(names, site.loads, strict=True)).items()
            ]
            edits += above_launch(program, launch, lines, renamed)
            edits.append(add_arguments(program, launch, {name: name for name in dict.fromkeys(names)}))
        return Rewrite((*edits, *importing), f"{len(site.loads)} loads of {site.kernel} by descriptors")


def _site(program: Program, kernel: Scope) -> DescribedSite | None:
    """The loads, where every launch is a statement and shows the parameters."""
    launches = program.launches_of(kernel)
    loads = tuple(load for load in tile_loads(program, kernel) if _is_matrix(program, launches, load))
    plain = all(is_statement(program, launch) for launch in launches)
    return DescribedSite(kernel.name, loads) if loads and plain else None


def _is_matrix(program: Program, launches: list[Launch], load: TileLoad) -> bool:
    wanted = [load.base, *(s.extent for s in load.sides), *(s.bound for s in load.sides)]
    wanted += [s.stride for s in load.sides if s.stride != "1"]
    shown = all(host_text(program, launch, name, {}) for launch in launches for name in wanted)
    return shown and _inner(program, launches[0], load) is not None


def _inner(program: Program, launch: Launch, load: TileLoad) -> int | None:
    """Which axis of a tile runs along contiguous elements: the one without a stride, else the one whose stride the
    launch takes from the last axis of a tensor."""
    plain = [axis for axis, side in enumerate(load.sides) if side.stride == "1"]
    texts = [host_text(program, launch, side.stride, {}).replace(" ", "") for side in load.sides]
    last = [axis for axis, text in enumerate(texts) if text.endswith((".stride(1)", ".stride(-1)"))]
    found = plain or last
    return found[0] if len(found) == 1 else None


def _outer_and_inner(program: Program, launch: Launch, load: TileLoad) -> tuple[Side, Side]:
    """The sides of a tile as a descriptor has them: contiguous elements last."""
    return load.sides if _inner(program, launch, load) == 1 else (load.sides[1], load.sides[0])


def _names(program: Program, site: DescribedSite) -> list[str]:
    """A name of a descriptor for each load; loads of equal tiles of one matrix share it."""
    by_tile: dict[tuple[object, ...], str] = {}
    names: list[str] = []
    launch = program.launches_of(program.kernels[site.kernel])[0]
    for load in site.loads:
        tile = (load.base, *((s.extent, s.stride, s.bound) for s in _outer_and_inner(program, launch, load)))
        if tile not in by_tile:
            taken = sum(key[0] == load.base for key in by_tile)
            by_tile[tile] = fresh_name(program, f"{load.base}_tiles{taken or ''}")
        names.append(by_tile[tile])
    return names


def _described(program: Program, kernel: Scope, load: TileLoad, name: str) -> Edit:
    """The load by a descriptor where there is one."""
    device = program.alias("triton.language")
    launch = program.launches_of(kernel)[0]
    sides = _outer_and_inner(program, launch, load)
    wide = "int64" in program.source[slice(*program.span(kernel.node))]
    place = ", ".join(_offset(side, f"{device}.cast({{}}, {device}.int32)" if wide else "{}") for side in sides)
    tile = f"{name}.load([{place}])"
    tile = tile if _inner(program, launch, load) == 1 else f"{device}.trans({tile})"
    return Edit(*program.span(load.call), f"({tile} if {name} is not None else {program.text(load.call)})")


def _offset(side: Side, cast_to_narrow: str) -> str:
    text = " + ".join(side.offsets)
    return cast_to_narrow.format(text) if text else "0"


def _descriptor(program: Program, launch: Launch, load: TileLoad, known: str, renamed: dict[str, str]) -> str:
    """The descriptor of a matrix, or None where it may not have one, as an expression for where the launch stands."""
    sides = _outer_and_inner(program, launch, load)
    base = host_text(program, launch, load.base, {})
    shape, strides, tile = (
        [host_text(program, launch, name, renamed) for name in names]
        for names in ([s.bound for s in sides], [s.stride for s in sides], [s.extent for s in sides])
    )
    unit = [f"{strides[1]} == 1"] if strides[1] != "1" else []
    conditions = [
        *unit,
        f"{strides[0]} * {base}.element_size() % 16 == 0",
        f"{base}.storage_offset() * {base}.element_size() % 16 == 0",
        f"{tile[1]} * {base}.element_size() >= 16",
        f"max({tile[0]}, {tile[1]}) <= 256",
    ]
    made = f"{known}({base}, [{', '.join(shape)}], [{strides[0]}, 1], [{', '.join(tile)}])"
    return f"{made} if {' and '.join(conditions)} else None"


def _descriptor_class(program: Program) -> tuple[str, list[Edit]]:
    """How the program calls `TensorDescriptor`, and the edit that imports it where it does not yet."""
    known = program.alias(_CLASS)
    if known:
        return known, []
    imports = [line for line in cast(cst.Module, program.root.node).body if _is_import(line)]
    at = line_end(program.source, program.span(imports[-1]).end)
    module, _, name = _CLASS.rpartition(".")
    return name, [Edit(at, at, f"\nfrom {module} import {name}")]


def _is_import(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Import | cst.ImportFrom)

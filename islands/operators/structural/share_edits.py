"""How a loop is done in shares, in text: the kernel that does one share, the one that joins them, and the launches."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, integer
from islands.operators.structural.carried import Accumulator
from islands.operators.structural.grids import above_kernel, constant_name, fresh_name, grid_components, operand
from islands.operators.structural.kernels import axis_of
from islands.operators.structural.launches import above_launch, host_text, names_for_tiles
from islands.operators.structural.places import last_character
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.recurrences import JOINS
from islands.operators.structural.shares import SHARE_END, Partial, ShareSite, device_text
from islands.operators.structural.text import Edit, indent_of, splice

_LAST_AXIS = 2
_LOWEST = {"max": 'float("-inf")', "min": 'float("inf")'}


class _Names(NamedTuple):
    """Names that the program does not use yet."""

    kernel: str  # that does a share
    constant: str  # of the module: how many shares
    n_shares: str  # parameter with the same value
    share: str
    at: str
    parts: dict[str, str]  # by accumulator: its workspace
    strides: dict[str, str]
    widths: dict[int, str]  # by axis of the grid, from the second on

    @property
    def parameters(self) -> list[str]:
        return [*self.parts.values(), *self.strides.values(), *self.widths.values(), self.n_shares]


def share_edits(program: Program, site: ShareSite, n_shares: int) -> tuple[Edit, ...]:
    """Everything that changes when a loop is done in `n_shares` shares."""
    kernel = program.kernels[site.kernel]
    names = _names(program, site)
    shared = f"{names.constant} = {n_shares}\n\n\n{_share_kernel(program, site, names)}\n\n\n"
    edits = [above_kernel(program, kernel, shared), _parameters(program, kernel, names)]
    edits += _joining(program, site, names)
    for launch in program.launches_of(kernel):
        edits += _launch_edits(program, site, launch, names)
    return tuple(edits)


def _names(program: Program, site: ShareSite) -> _Names:
    own = [a.name for a in site.carried.accumulators]
    return _Names(
        fresh_name(program, f"{site.kernel}_share"),
        constant_name(program, program.kernels[site.kernel], "SHARES"),
        fresh_name(program, "N_SHARES"),
        fresh_name(program, "share"),
        fresh_name(program, "share_at"),
        {name: fresh_name(program, f"parts_{name}") for name in own},
        {
            p.accumulator.name: fresh_name(program, f"stride_parts_{p.accumulator.name}")
            for p in site.partials
            if p.shape
        },
        {axis: fresh_name(program, f"grid_{axis}") for axis in range(1, site.rank)},
    )


def _parameters(program: Program, kernel: Scope, names: _Names) -> Edit:
    device = program.alias("triton.language")
    has_default = kernel.parameters[-1].default is not None
    runtime = [*names.parts.values(), *names.strides.values(), *names.widths.values()]
    declared = [f"{name}=None" if has_default else name for name in runtime]
    return add_parameters(
        program, kernel, [*declared, f"{names.n_shares}: {device}.constexpr" + (" = 1" if has_default else "")]
    )


# ----------------------------------------------------------------------------------------- the kernel that does a share


def _share_kernel(program: Program, site: ShareSite, names: _Names) -> str:
    kernel = program.kernels[site.kernel]
    node = cast(cst.FunctionDef, kernel.node)
    start = min(program.span(n).start for n in (node, *node.decorators))
    start = program.source.rfind("\n", 0, start) + 1
    end = last_character(program, node)
    edits = [
        Edit(*program.span(node.name), names.kernel),
        _parameters(program, kernel, names),
        *_share_of_loop(program, site, names),
        _kept(program, site, names, end),
    ]
    within = [Edit(e.start - start, e.end - start, e.text) for e in edits]
    return splice(program.source[start:end], within) or ""


def _share_of_loop(program: Program, site: ShareSite, names: _Names) -> list[Edit]:
    """The bounds of a share instead of those of the loop, pointers that start there, and ids without the share."""
    device, loop = program.alias("triton.language"), site.loop
    size, first, begin, stop = (fresh_name(program, n) for n in ("share_size", "share_first", "share_start", SHARE_END))
    low = "" if loop.start is None or integer(loop.start) == 0 else operand(program, loop.start)
    step = "" if loop.step is None or integer(loop.step) == 1 else operand(program, loop.step)
    end = operand(program, loop.stop)
    length = f"{end} - {low}" if low else end
    times = f" * {step}" if step else ""
    rank3 = site.rank > _LAST_AXIS
    axis = f"{device}.program_id({_LAST_AXIS}) % {names.n_shares}" if rank3 else f"{device}.program_id({site.rank})"
    lines = [
        f"{names.share} = {axis}",
        f"{size} = {device}.cdiv({f'{device}.cdiv({length}, {step})' if step else length}, {names.n_shares})",
        f"{first} = {names.share} * {size}",
        f"{begin} = {f'{low} + ' if low else ''}{first}{times}",
        f"{stop} = {device}.minimum({begin} + {size}{times}, {end})",
        *(f"{a.name} += {device}.cast({first}, {device}.int64) * ({a.step})" for a in site.carried.advances),
    ]
    at = program.span(loop.node).start
    indent = indent_of(program.source, at)
    plain = [a for a in loop.call.args if a.keyword is None]
    bounds = Edit(
        program.span(plain[0]).start, program.span(plain[-1]).end, ", ".join(filter(None, (begin, stop, step)))
    )
    return [Edit(at, at, "".join(f"{line}\n{indent}" for line in lines)), bounds, *_ids(program, site, names)]


def _ids(program: Program, site: ShareSite, names: _Names) -> list[Edit]:
    """A grid of three axes has its shares in the last."""
    kernel = program.kernels[site.kernel]
    calls = program.device_calls(kernel, "program_id", "num_programs") if site.rank > _LAST_AXIS else []
    end = program.span(site.loop.node).end
    spans = [(program.span(c), program.text(c)) for c in calls if axis_of(c) == _LAST_AXIS]
    return [Edit(*span, f"({text} // {names.n_shares})") for span, text in spans if span.start < end]


def _kept(program: Program, site: ShareSite, names: _Names, end: int) -> Edit:
    """Stores of the accumulators instead of all that follows the loop."""
    device = program.alias("triton.language")
    lines = [f"{names.at} = {_number(program, site, names, in_share=True)} * {names.n_shares} + {names.share}"]
    for partial in site.partials:
        value = program.text(partial.reductions[0]) if partial.reductions else partial.accumulator.name
        lines.append(f"{device}.store({_pointer(program, partial, names)}, {value})")
    start = last_character(program, site.loop.node)
    indent = indent_of(program.source, program.span(site.loop.node).start)
    return Edit(start, end, "".join(f"\n{indent}{line}" for line in lines))


def _number(program: Program, site: ShareSite, names: _Names, in_share: bool) -> str:
    """The running number of a program of the old grid."""
    device = program.alias("triton.language")
    ids = [f"{device}.program_id({axis})" for axis in range(site.rank)]
    if in_share and site.rank > _LAST_AXIS:
        ids[_LAST_AXIS] = f"{ids[_LAST_AXIS]} // {names.n_shares}"
    number = ids[0]
    for axis, name in names.widths.items():
        number = f"({number}) * {name} + {ids[axis]}" if "+" in number else f"{number} * {name} + {ids[axis]}"
    return f"{device}.cast({number}, {device}.int64)"


def _pointer(program: Program, partial: Partial, names: _Names) -> str:
    """Where a share's value of an accumulator stands in the workspace."""
    device, name = program.alias("triton.language"), partial.accumulator.name
    if not partial.shape:
        return f"{names.parts[name]} + {names.at}"
    lanes = [f"{device}.arange(0, {extent})" for extent in partial.shape]
    tile = lanes[0] if len(lanes) == 1 else f"{lanes[0]}[:, None] * {partial.shape[1]} + {lanes[1]}[None, :]"
    return f"{names.parts[name]} + {names.at} * {names.strides[name]} + {tile}"


# ------------------------------------------------------------------------------------------------ the kernel that joins


def _joining(program: Program, site: ShareSite, names: _Names) -> list[Edit]:
    """Joined shares instead of the loop, and instead of reductions that every share has done already."""
    device = program.alias("triton.language")
    wholes = {p.accumulator.name: fresh_name(program, f"whole_{p.accumulator.name}") for p in site.partials}
    reduced = [p for p in site.partials if p.reductions]
    lines = [f"{wholes[p.accumulator.name]} = {_neutral(program, p)}" for p in reduced]
    lines.append(f"for {names.share} in {device}.static_range({names.n_shares}):")
    inner = [f"{names.at} = {_number(program, site, names, in_share=False)} * {names.n_shares} + {names.share}"]
    inner += _rescaled(program, site, names)
    for partial in site.partials:
        accumulator = partial.accumulator
        if accumulator.factor_index is None and accumulator.name != site.carried.top:
            name = wholes[accumulator.name] if partial.reductions else accumulator.name
            inner.append(_joined(program, accumulator.kind, name, _load(program, partial, names)))
    lines += [f"    {line}" for line in inner]
    start = program.span(site.loop.node).start
    indent = indent_of(program.source, start)
    loop = Edit(start, last_character(program, site.loop.node), f"\n{indent}".join(lines))
    return [loop, *(Edit(*program.span(c), wholes[p.accumulator.name]) for p in reduced for c in p.reductions)]


def _neutral(program: Program, partial: Partial) -> str:
    device, kind = program.alias("triton.language"), partial.accumulator.kind
    value = "0.0" if kind == "sum" else _LOWEST[kind]
    return f"{device}.full(({partial.shape[0]},), {value}, {device}.float32)" if partial.shape else value


def _load(program: Program, partial: Partial, names: _Names) -> str:
    return f"{program.alias('triton.language')}.load({_pointer(program, partial, names)})"


def _joined(program: Program, kind: str, name: str, part: str) -> str:
    return (
        f"{name} += {part}"
        if kind == "sum"
        else f"{name} = {program.alias('triton.language')}.{JOINS[kind]}({name}, {part})"
    )


def _rescaled(program: Program, site: ShareSite, names: _Names) -> list[str]:
    """Sums below a running maximum, brought to the maximum of both sides."""
    device, top, power = program.alias("triton.language"), site.carried.top, site.carried.power
    if not top:
        return []
    by_name = {p.accumulator.name: p for p in site.partials}
    part, new, before, after = (fresh_name(program, f"{top}_{n}") for n in ("part", "joined", "factor", "part_factor"))
    lines = [
        f"{part} = {_load(program, by_name[top], names)}",
        f"{new} = {device}.maximum({top}, {part})",
        f"{before} = {power}({top} - {new})",
        f"{after} = {power}({part} - {new})",
    ]
    rescaled: list[Accumulator] = [a for a in site.carried.accumulators if a.factor_index is not None]
    for name, index in [(a.name, a.factor_index) for a in rescaled]:
        joined = f"{name} * {before}{index} + {_load(program, by_name[name], names)} * {after}{index}"
        lines.append(f"{name} = {joined}")
    return [*lines, f"{top} = {new}"]


# --------------------------------------------------------------------------------------------------------- the launches


def _launch_edits(program: Program, site: ShareSite, launch: Launch, names: _Names) -> list[Edit]:
    """The workspaces and a launch of the shares above the old launch, which gets the workspaces too. Tiles that were
    written at the launch get a name, so that both launches change together."""
    renamed = names_for_tiles(program, launch)
    grid = grid_components(program, launch, renamed) or []
    extra = _extra_arguments(names, grid)
    lines = _workspaces(program, site, launch, names, grid, renamed)
    lines += _share_launch(program, site, launch, names, grid, renamed, extra)
    return [*above_launch(program, launch, lines, renamed), add_arguments(program, launch, extra)]


def _extra_arguments(names: _Names, grid: list[str]) -> dict[str, str]:
    parts = {name: name for name in names.parts.values()}
    strides = {stride: f"{names.parts[own]}.stride(1)" for own, stride in names.strides.items()}
    widths = {name: grid[axis] for axis, name in names.widths.items()}
    return {**parts, **strides, **widths, names.n_shares: names.constant}


def _workspaces(
    program: Program, site: ShareSite, launch: Launch, names: _Names, grid: list[str], renamed: dict[str, str]
) -> list[str]:
    torch = program.alias("torch")
    lines: list[str] = []
    for partial in site.partials:
        extents = [host_text(program, launch, e, renamed) for e in partial.shape]
        shape = ", ".join([" * ".join(grid), names.constant, *extents])
        workspace = names.parts[partial.accumulator.name]
        options = f"device={device_text(program, launch)}, dtype={torch}.float32"
        lines.append(f"{workspace} = {torch}.empty(({shape}), {options})")
    return lines


def _share_launch(
    program: Program,
    site: ShareSite,
    launch: Launch,
    names: _Names,
    grid: list[str],
    renamed: dict[str, str],
    extra: dict[str, str],
) -> list[str]:
    wide = [*grid, names.constant] if site.rank <= _LAST_AXIS else [*grid[:-1], f"{grid[-1]} * {names.constant}"]
    of_argument = {id(arg): name for name, arg in launch.arguments.items()}
    given: list[str] = []
    for arg in launch.call.args:
        start, end = program.span(arg)
        text = program.source[start:end]
        name = renamed.get(of_argument.get(id(arg), ""))
        if name is not None:
            text = f"{arg.keyword.value}={name}" if arg.keyword is not None else name
        given.append(text.rstrip(", \n"))
    return [
        f"{names.kernel}[({', '.join(wide)},)](",
        f"    {', '.join(given)},",
        f"    {', '.join(f'{name}={text}' for name, text in extra.items())},",
        ")",
    ]

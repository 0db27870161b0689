"""One program does the work of several: a loop around the body of a kernel, and a smaller grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope
from islands.operators.structural.grids import axes_of, fresh_name, grid_components, is_plain_kernel
from islands.operators.structural.kernels import axis_of
from islands.operators.structural.names import bindings
from islands.operators.structural.places import add_argument, end_of, last_character
from islands.operators.structural.text import Edit, indent_of

COUNT = "n_programs"  # parameters of this name say that a kernel loops already


def can_loop(program: Program, kernel: Scope) -> bool:
    """Whether a kernel's programs can be done by a loop: nothing returns early, and every launch has a known grid."""
    axes = axes_of(program, kernel)
    launches = program.launches_of(kernel)
    if axes is None or not launches or not program.alias("triton.language"):
        return False
    if not is_plain_kernel(kernel) or any(p.name.startswith(COUNT) for p in kernel.parameters):
        return False
    if _has_long_string(program, kernel):
        return False
    grids = [grid_components(program, launch) for launch in launches]
    return all(grid is not None and len(grid) > axes[-1] for grid in grids)


def loop_over_programs(
    program: Program, kernel: Scope, header: Sequence[str], ids: Mapping[int, str], counts: Mapping[int, str]
) -> list[Edit]:
    """The edits of a kernel's body: lines of `header` open a loop, the body moves into it, `tl.program_id(axis)` and
    `tl.num_programs(axis)` become names, and parameters that the body changes get a copy an iteration."""
    first, end = _body_range(program, kernel)
    indent = indent_of(program.source, first)
    changed = [p.name for p in kernel.parameters if bindings(program, kernel).get(p.name)]
    copies = {name: fresh_name(program, f"{name}_here") for name in changed}
    lines = [*header, *(f"    {copy} = {name}" for name, copy in copies.items())]
    edits = [Edit(first, first, "".join(f"{line}\n{indent}" for line in lines) + "    ")]
    edits += [Edit(at, at, "    ") for at in _line_starts(program, first, end)]
    edits += _rename(program, kernel, copies, first)
    for function, texts in (("program_id", ids), ("num_programs", counts)):
        for call in program.device_calls(kernel, function):
            span, text = program.span(call), texts.get(cast(int, axis_of(call)))
            if text is not None:
                edits.append(Edit(span.start, span.end, text))
    return edits


def as_tensor(program: Program, index: str) -> str:
    """The index of a loop with the methods of a tensor, which the interpreter's integers lack."""
    device = program.alias("triton.language")
    return f"{device}.cast({index}, {device}.int32)"


def add_parameters(program: Program, kernel: Scope, declarations: Sequence[str]) -> Edit:
    """The edit that appends parameters, each with a default, to a kernel."""
    node = kernel.parameters[-1].node
    end = max(
        end_of(program, n) for n in (node.name, node.annotation and node.annotation.annotation, node.default) if n
    )
    return Edit(end, end, "".join(f", {d}" for d in declarations))


def add_arguments(program: Program, launch: Launch, arguments: Mapping[str, str]) -> Edit:
    """The edit that passes more keyword arguments at a launch."""
    return add_argument(program, launch.call, ", ".join(f"{name}={text}" for name, text in arguments.items()))


def _body_range(program: Program, kernel: Scope) -> tuple[int, int]:
    """From the first statement after the docstring to the end of the last."""
    node = cast(cst.FunctionDef, kernel.node)
    skip = 1 if node.get_docstring() is not None else 0
    statements = cast(cst.IndentedBlock, node.body).body[skip:]
    return program.span(statements[0]).start, last_character(program, node)


def _line_starts(program: Program, first: int, end: int) -> list[int]:
    """Where the lines start that follow the first one, blank ones left out."""
    source, starts = program.source, []
    at = source.find("\n", first, end) + 1
    while at:
        if source[at : at + 1] not in ("\n", "\r", ""):
            starts.append(at)
        at = source.find("\n", at, end) + 1
    return starts


def _rename(program: Program, kernel: Scope, names: Mapping[str, str], first: int) -> list[Edit]:
    edits: list[Edit] = []
    for node in kernel.all(cst.Name):
        span, parent = program.span(node), program.parents[node]
        is_label = isinstance(parent, cst.Attribute) and parent.attr is node
        is_label |= isinstance(parent, cst.Arg) and parent.keyword is node
        if span.start >= first and node.value in names and not is_label:
            edits.append(Edit(span.start, span.end, names[node.value]))
    return edits


def _has_long_string(program: Program, kernel: Scope) -> bool:
    """Whether a string of the body spans lines, so that indenting would change it."""
    node = cast(cst.FunctionDef, kernel.node)
    skipped = program.span(cast(cst.IndentedBlock, node.body).body[0]).start if node.get_docstring() is not None else -1
    spans = [program.span(s) for s in kernel.all(cst.SimpleString)]
    return any("\n" in program.source[slice(*s)] for s in spans if s.start != skipped)

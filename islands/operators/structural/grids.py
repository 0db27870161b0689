"""Rewrites of the grid of a launch and of how a kernel numbers its programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, descendants, names_in
from islands.operators.structural.kernels import axis_of, has_return, program_id_calls
from islands.operators.structural.names import bindings
from islands.operators.structural.places import string_value
from islands.operators.structural.text import Edit, indent_of
from islands.operators.structural.tiles import mapping_entry

MODULE_CONSTANT = re.compile(r"[^A-Z0-9]+")


def axes_of(program: Program, kernel: Scope) -> list[int] | None:
    """The axes of the grid that a kernel reads, or None when one of them is not a literal."""
    calls = program.device_calls(kernel, "program_id", "num_programs")
    axes = {axis_of(c) for c in calls}
    return None if None in axes or not axes else sorted(cast(set[int], axes))


def grid_components(program: Program, launch: Launch, renamed: Mapping[str, str] | None = None) -> list[str] | None:
    """The expressions of a launch's grid, one text an axis, each evaluable where the launch stands; else None.

    `renamed` has other texts for what a grid function reads of the launch's parameters.
    """
    if len(launch.grid) > 1:
        return [operand(program, part) for part in launch.grid]
    node: cst.CSTNode = launch.grid[0]
    name = ""
    if isinstance(node, cst.Name):
        name = node.value
        found = _grid_of_name(program, launch, name)
        if found is None:
            return None
        node = found
    if isinstance(node, cst.Lambda):
        parameters = [p.name.value for p in node.params.params]
        return _meta_components(program, launch, node.body, parameters, renamed or {})
    if not isinstance(node, cst.Tuple | cst.List) or any(isinstance(e, cst.StarredElement) for e in node.elements):
        return None
    if name:
        return [f"{name}[{axis}]" for axis in range(len(node.elements))]
    return [operand(program, element.value) for element in node.elements]


def constant_text(program: Program, launch: Launch, parameter: str) -> str | None:
    """What a launch passes for a parameter, as text for where it stands: an argument, or an entry of a mapping that it
    passes with `**`. None where it passes nothing, or not so plainly."""
    arg = launch.arguments.get(parameter)
    if arg is not None:
        return operand(program, arg.value)
    names = [a.value for a in launch.call.args if a.star == "**" and isinstance(a.value, cst.Name)]
    found = [n.value for n in names if mapping_entry(program, launch, n, parameter) is not None]
    return f'{found[0]}["{parameter}"]' if found else None


def operand(program: Program, node: cst.CSTNode) -> str:
    """The text of an expression so that it can stand inside another one."""
    text = program.text(node)
    plain = isinstance(node, cst.Name | cst.Attribute | cst.Integer | cst.Call | cst.Subscript)
    return text if plain or text.startswith("(") else f"({text})"


def set_grid(program: Program, launch: Launch, components: Sequence[str]) -> Edit:
    """The edit that gives a launch another grid."""
    subscript = cast(cst.Subscript, launch.call.func)
    start, end = program.span(subscript.slice[0]).start, program.span(subscript.slice[-1]).end
    return Edit(start, end, f"({', '.join(components)},)")


def replace_program_ids(program: Program, kernel: Scope, texts: dict[int, str]) -> list[Edit]:
    """Every `tl.program_id(axis)` of a kernel becomes the text of its axis."""
    found = [(program.span(c), axis_of(c)) for c in program_id_calls(program, kernel)]
    return [Edit(span.start, span.end, texts[axis]) for span, axis in found if axis in texts]


def fresh_name(program: Program, wanted: str) -> str:
    """A name that the source does not use yet."""
    name, n = wanted, 1
    while name in program.source and re.search(rf"\b{re.escape(name)}\b", program.source):
        n += 1
        name = f"{wanted}_{n}"
    return name


def constant_name(program: Program, kernel: Scope, suffix: str) -> str:
    """A name for a constant of the module that belongs to a kernel: "ROWS_OF_SOFTMAX_KERNEL"."""
    stem = MODULE_CONSTANT.sub("_", kernel.name.upper()).strip("_")
    return fresh_name(program, f"{suffix}_OF_{stem}")


def above_kernel(program: Program, kernel: Scope, text: str) -> Edit:
    """The edit that puts lines of module level above a kernel and its decorators."""
    node = cast(cst.FunctionDef, kernel.node)
    start = min(program.span(n).start for n in (node, *node.decorators))
    start = program.source.rfind("\n", 0, start) + 1
    return Edit(start, start, text)


def first_line(program: Program, kernel: Scope, lines: Iterable[str]) -> Edit | None:
    """The edit that puts lines at the top of a kernel, after its docstring."""
    body = cast(cst.FunctionDef, kernel.node).body
    if not isinstance(body, cst.IndentedBlock):
        return None
    skip = 1 if cast(cst.FunctionDef, kernel.node).get_docstring() is not None else 0
    if len(body.body) <= skip:
        return None
    start = program.span(body.body[skip]).start
    indent = indent_of(program.source, start)
    return Edit(start, start, "".join(f"{line}\n{indent}" for line in lines))


def is_plain_kernel(kernel: Scope) -> bool:
    """At module level, with one decorator that takes no arguments, plain parameters, and no early return."""
    node = cast(cst.FunctionDef, kernel.node)
    plain = not node.params.kwonly_params and not node.params.posonly_params and node.params.star_kwarg is None
    bare = len(node.decorators) == 1 and not isinstance(node.decorators[0].decorator, cst.Call)
    at_module_level = kernel.parent is not None and kernel.parent.parent is None and not kernel.class_name
    return bare and plain and at_module_level and not has_return(kernel) and isinstance(node.body, cst.IndentedBlock)


def _grid_of_name(program: Program, launch: Launch, name: str) -> cst.CSTNode | None:
    """What a name that a launch uses as its grid was bound to, once."""
    local = bindings(program, launch.scope).get(name, [])
    if len(local) == 1 and isinstance(local[0].value, cst.Tuple | cst.List | cst.Lambda):
        return local[0].value
    inner = [s for s in program.scopes if s.parent is launch.scope and s.name == name]
    if len(inner) != 1 or len(inner[0].all(cst.Return)) != 1 or len(inner[0].parameters) != 1:
        return None
    value = inner[0].all(cst.Return)[0].value
    if value is None:
        return None
    parameter = cst.Parameters(params=[cst.Param(cst.Name(inner[0].parameters[0].name))])
    return cst.Lambda(parameter, value) if not names_in(value) & set(bindings(program, inner[0])) else None


def _meta_components(
    program: Program, launch: Launch, body: cst.CSTNode, parameters: list[str], renamed: Mapping[str, str]
) -> list[str] | None:
    """The components of a grid function, with `meta["BLOCK"]` replaced by what the launch passes for BLOCK."""
    if not isinstance(body, cst.Tuple | cst.List) or len(parameters) != 1:
        return None
    components = [_without_meta(program, launch, e.value, parameters[0], renamed) for e in body.elements]
    return None if None in components else cast(list[str], components)


def _without_meta(
    program: Program, launch: Launch, node: cst.CSTNode, meta: str, renamed: Mapping[str, str]
) -> str | None:
    offset = program.span(node).start
    text = program.source[slice(*program.span(node))]
    for item in sorted(_subscripts_of(node, meta), key=lambda n: -program.span(n).start):
        index = item.slice[0].slice
        key = string_value(index.value) if isinstance(index, cst.Index) else None
        value = renamed.get(key or "") or constant_text(program, launch, key or "")
        if value is None:
            return None
        start, end = program.span(item)
        text = text[: start - offset] + value + text[end - offset :]
    return None if re.search(rf"\b{re.escape(meta)}\b", text) else f"({text})"


def _subscripts_of(node: cst.CSTNode, name: str) -> list[cst.Subscript]:
    found = [n for n in descendants(node) if isinstance(n, cst.Subscript)]
    return [n for n in found if isinstance(n.value, cst.Name) and n.value.value == name and len(n.slice) == 1]

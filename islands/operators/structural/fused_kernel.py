"""Two launches as one, in text: the first kernel with the second's statements behind its store, and one launch."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, descendants, integer, names_in
from islands.operators.structural.fused_body import Body, NotUnderstoodError
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.host_facts import occurrences
from islands.operators.structural.launch_pairs import LaunchPair, is_only_loaded, parameter_of
from islands.operators.structural.names import bindings
from islands.operators.structural.places import last_character
from islands.operators.structural.text import Edit, Span, indent_of, line_end, splice


class _Given(NamedTuple):
    """The tensors of the second launch in the first kernel."""

    names: dict[str, str]  # what the second kernel's parameters are called there
    added: dict[str, str]  # new parameters, with what the launch passes for them


def fusion_edits(program: Program, pair: LaunchPair) -> list[Edit] | None:
    """Everything that changes when a pair becomes one launch, or None where the second kernel is not understood."""
    kernel = cast(Scope, pair.first.kernel)
    taken = {n.value for n in descendants(kernel.node) if isinstance(n, cst.Name)} | set(program.kernels)
    taken |= set(program.aliases) | set(bindings(program, program.root))
    taken -= set() if pair.tensor.is_used_later else {parameter_of(program, pair.first, pair.tensor.name)}
    try:
        given = _given(program, pair, taken)
        lines = Body(program, pair, given.names, taken).lines()
    except NotUnderstoodError:
        return None
    return [*_kernel_edits(program, pair, given, lines), *_host_edits(program, pair, given)]


def _given(program: Program, pair: LaunchPair, taken: set[str]) -> _Given:
    first, second = cast(Scope, pair.first.kernel), cast(Scope, pair.second.kernel)
    parameter = first.parameter(parameter_of(program, pair.first, pair.tensor.name) or "")
    if parameter is None or parameter.node.annotation is not None or parameter.default is not None:
        raise NotUnderstoodError("a tensor that is no plain parameter")
    passed = {program.text(a.value): p for p, a in pair.first.arguments.items() if first.parameter(p) is not None}
    given = _Given({}, {})
    for access in pair.trace.accesses:
        name = access.pointer.parameter if access.pointer is not None else ""
        arg = pair.second.arguments.get(name)
        if name in given.names or access.call is pair.load.call:
            continue
        if arg is None or arg.value is None:
            raise NotUnderstoodError("a tensor that the launch does not pass")
        text = program.text(arg.value)
        own = passed.get(text, "")
        shared = own and is_only_loaded(program, first, own) and is_only_loaded(program, second, name)
        given.names[name] = own if shared else _fresh(name, taken)
        given.added.update({} if shared else {given.names[name]: text})
    return given


def _fresh(name: str, taken: set[str]) -> str:
    fresh, n = name, 1
    while fresh in taken:
        fresh, n = f"{name}_{n}", n + 1
    taken.add(fresh)
    return fresh


# --------------------------------------------------------------------------------------------------------- the kernel


def _kernel_edits(program: Program, pair: LaunchPair, given: _Given, lines: list[str]) -> list[Edit]:
    kernel = cast(Scope, pair.first.kernel)
    name = parameter_of(program, pair.first, pair.tensor.name)
    parameter = kernel.parameter(cast(str, name))
    kept = [cast(str, name)] if pair.tensor.is_used_later else []
    edits = [
        Edit(*program.span(parameter.node.name), ", ".join([*kept, *given.added])) if parameter is not None else None,
        _behind_store(program, pair, lines),
    ]
    return [*_placed(program, pair, [e for e in edits if e is not None]), *_without_second(program, pair)]


def _behind_store(program: Program, pair: LaunchPair, lines: list[str]) -> Edit:
    """The lines behind the store, or in its place where nothing reads the tensor any more."""
    start, end = program.span(program.parents[pair.store.call])
    text = f"\n{indent_of(program.source, start)}".join(lines)
    if not pair.tensor.is_used_later:
        return Edit(start, end, text)
    end = line_end(program.source, end)
    return Edit(end, end, f"\n{indent_of(program.source, start)}{text}")


def _placed(program: Program, pair: LaunchPair, edits: list[Edit]) -> list[Edit]:
    """The edits in the first kernel itself, or in a copy of it above it where something else uses it too."""
    kernel = cast(Scope, pair.first.kernel)
    name = fused_name(program, pair)
    if name == kernel.name:
        return edits
    start, end = _definition(program, kernel)
    edits = [*edits, Edit(*program.span(cast(cst.FunctionDef, kernel.node).name), name)]
    copy = splice(program.source[start:end], [Edit(e.start - start, e.end - start, e.text) for e in edits])
    return [Edit(start, start, f"{copy}\n\n\n")]


def fused_name(program: Program, pair: LaunchPair) -> str:
    """What the first kernel is called with the second's statements: as before, unless something else uses it."""
    kernel = cast(Scope, pair.first.kernel)
    alone = len(occurrences(program.module, kernel.name)) <= 2
    return kernel.name if alone else fresh_name(program, f"{kernel.name}_{pair.second.kernel_name}")


def _without_second(program: Program, pair: LaunchPair) -> list[Edit]:
    """The second kernel goes unless something else uses it."""
    kernel = cast(Scope, pair.second.kernel)
    if len(occurrences(program.module, kernel.name)) > 2:
        return []
    start, end = _definition(program, kernel)
    rest = program.source[end:]
    return [Edit(start, end + len(rest) - len(rest.lstrip("\r\n")), "")]


def _definition(program: Program, kernel: Scope) -> Span:
    """From the line of a kernel's decorator to its end."""
    node = cast(cst.FunctionDef, kernel.node)
    start = min(program.span(n).start for n in (node, *node.decorators))
    return Span(program.source.rfind("\n", 0, start) + 1, line_end(program.source, last_character(program, node)))


# ---------------------------------------------------------------------------------------------------------- the launch


def _host_edits(program: Program, pair: LaunchPair, given: _Given) -> list[Edit]:
    """One launch in the place of the second; what only the second needed goes."""
    unused = [_line_of(program, pair.first.call)]
    if not pair.tensor.is_mentioned:
        unused.append(_line_of(program, pair.tensor.allocation))
    unused += [_line_of(program, node) for node in _numbers_of_second(program, pair)]
    launch = Edit(*program.span(pair.second.call), _launch(program, pair, given))
    return [launch, *(Edit(*span, "") for span in unused)]


def _launch(program: Program, pair: LaunchPair, given: _Given) -> str:
    """The first launch with the second's tensors."""
    first = pair.first
    name = cast(str, parameter_of(program, first, pair.tensor.name))
    arg = first.arguments[name]
    passed = {**({name: pair.tensor.name} if pair.tensor.is_used_later else {}), **given.added}
    texts = [f"{p}={text}" if arg.keyword is not None else text for p, text in passed.items()]
    whole = program.span(arg.keyword).start if arg.keyword is not None else program.span(arg.value).start
    function = cast(cst.Subscript, first.call.func).value
    start, end = program.span(first.call)
    edits = [
        Edit(*program.span(function), fused_name(program, pair)),
        Edit(whole, program.span(arg.value).end, ", ".join(texts)),
    ]
    return splice(program.source[start:end], [Edit(e.start - start, e.end - start, e.text) for e in edits]) or ""


def _numbers_of_second(program: Program, pair: LaunchPair) -> list[cst.CSTNode]:
    """The assignments of integers that only the second launch reads."""
    scope = pair.second.scope
    found: list[cst.CSTNode] = []
    for name in sorted(names_in(pair.second.call)):
        group = bindings(program, scope).get(name, [])
        n_inside = len(occurrences(pair.second.call, name))
        alone = len(group) == 1 and len(occurrences(scope.node, name)) == n_inside + 1
        if alone and integer(group[0].value) is not None and isinstance(group[0].statement, cst.Assign):
            found.append(group[0].statement)
    return found


def _line_of(program: Program, node: cst.CSTNode) -> Span:
    """The lines of a statement that has them for itself."""
    line = next(n for n in (node, *program.ancestors(node)) if isinstance(n, cst.SimpleStatementLine))
    start, end = program.span(line)
    source = program.source
    return Span(source.rfind("\n", 0, start) + 1, min(line_end(source, end) + 1, len(source)))

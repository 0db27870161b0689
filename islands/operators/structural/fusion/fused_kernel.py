"""Two launches as one, in text: the first kernel with the second's statements behind its store, and one launch."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, descendants, integer, names_in
from islands.operators.structural.fusion.fused_body import Body, fresh_in
from islands.operators.structural.fusion.handovers import is_only_loaded
from islands.operators.structural.fusion.host_facts import occurrences
from islands.operators.structural.fusion.launch_pairs import LaunchPair
from islands.operators.structural.fusion.surroundings import NotUnderstoodError
from islands.operators.structural.grids import fresh_name
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
    taken -= {h.parameter for h in pair.handovers if not h.tensor.is_used_later}
    try:
        given = _given(program, pair, taken)
        body = Body(program, pair, given.names, taken)
        edits = [_parameters(program, pair, given), *_behind_stores(program, pair, body)]
    except NotUnderstoodError:
        return None
    placed = _placed(program, pair, edits)
    return [*placed, *_without_second(program, pair), *_host_edits(program, pair, given)]


def _given(program: Program, pair: LaunchPair, taken: set[str]) -> _Given:
    first, second = cast(Scope, pair.first.kernel), cast(Scope, pair.second.kernel)
    passed = {program.text(a.value): p for p, a in pair.first.arguments.items() if first.parameter(p) is not None}
    handed = {id(h.load.call) for h in pair.handovers}
    given = _Given({}, {})
    for access in pair.trace.accesses:
        name = access.pointer.parameter if access.pointer is not None else ""
        arg = pair.second.arguments.get(name)
        if name in given.names or id(access.call) in handed:
            continue
        if arg is None:
            raise NotUnderstoodError("a tensor that the launch does not pass")
        text = program.text(arg.value)
        own = passed.get(text, "")
        shared = own and is_only_loaded(program, first, own) and is_only_loaded(program, second, name)
        given.names[name] = own if shared else fresh_in(taken, name)
        given.added.update({} if shared else {given.names[name]: text})
    return given


# --------------------------------------------------------------------------------------------------------- the kernel


def _parameters(program: Program, pair: LaunchPair, given: _Given) -> Edit:
    """The parameters from the first to the last that is handed over, without those that are not needed any more, and
    with the second kernel's."""
    kernel = cast(Scope, pair.first.kernel)
    nodes = [p.node for p in kernel.parameters]
    handed = [i for i, p in enumerate(kernel.parameters) if p.name in _handed_parameters(pair)]
    between = nodes[handed[0] : handed[-1] + 1]
    if any(n.annotation is not None or n.default is not None for n in between):
        raise NotUnderstoodError("a tensor that is no plain parameter")
    unused = _handed_parameters(pair) - _kept_parameters(pair)
    kept = [n.name.value for n in between if n.name.value not in unused]
    start, end = program.span(between[0].name).start, program.span(between[-1].name).end
    return Edit(start, end, ", ".join([*kept, *given.added]))


def _handed_parameters(pair: LaunchPair) -> set[str]:
    return {h.parameter for h in pair.handovers}


def _kept_parameters(pair: LaunchPair) -> set[str]:
    """The first kernel's parameters of tensors that are read later."""
    return {h.parameter for h in pair.handovers if h.tensor.is_used_later}


def _behind_stores(program: Program, pair: LaunchPair, body: Body) -> list[Edit]:
    """Behind each store, or in its place where nothing reads the tensor any more, what it stores; behind the last one
    the second kernel's statements."""
    edits: list[Edit] = []
    for handover in pair.handovers:
        lines = [body.value_of(handover), *(body.lines() if handover is pair.handovers[-1] else [])]
        start, end = program.span(program.parents[handover.store.call])
        indent = f"\n{indent_of(program.source, start)}"
        if handover.tensor.is_used_later:
            start = end = line_end(program.source, end)
            lines = ["", *lines]
        edits.append(Edit(start, end, indent.join(lines)))
    return edits


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
    alone = len(occurrences(program, program.module, kernel.name)) <= 2
    return kernel.name if alone else fresh_name(program, f"{kernel.name}_{pair.second.kernel_name}")


def _without_second(program: Program, pair: LaunchPair) -> list[Edit]:
    """The second kernel goes unless something else uses it."""
    kernel = cast(Scope, pair.second.kernel)
    if len(occurrences(program, program.module, kernel.name)) > 2:
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
    unused += [_line_of(program, h.tensor.allocation) for h in pair.handovers if not h.tensor.is_mentioned]
    unused += [_line_of(program, node) for node in _numbers_of_second(program, pair)]
    launch = Edit(*program.span(pair.second.call), _launch(program, pair, given))
    return [launch, *(Edit(*span, "") for span in unused)]


def _launch(program: Program, pair: LaunchPair, given: _Given) -> str:
    """The first launch with the second's tensors."""
    call = pair.first.call
    handed = {id(pair.first.arguments[name]): name for name in _handed_parameters(pair)}
    last = max((a for a in call.args if id(a) in handed), key=lambda a: program.span(a.value).start)
    named = last.keyword is not None
    texts: list[str] = []
    for arg in call.args:
        if handed.get(id(arg)) not in _handed_parameters(pair) - _kept_parameters(pair):
            texts.append((f"{arg.keyword.value}=" if arg.keyword else "") + program.text(arg.value))
        if arg is last:
            texts += [f"{name}={text}" if named else text for name, text in given.added.items()]
    start, end = program.span(call.func)
    function = program.source[program.span(cast(cst.Subscript, call.func).value).end : end]
    indent = indent_of(program.source, start)
    return f"{fused_name(program, pair)}{function}(\n{indent}    {', '.join(texts)}\n{indent})"


def _numbers_of_second(program: Program, pair: LaunchPair) -> list[cst.CSTNode]:
    """The assignments of integers that only the second launch reads."""
    scope = pair.second.scope
    found: list[cst.CSTNode] = []
    for name in sorted(names_in(pair.second.call)):
        group = bindings(program, scope).get(name, [])
        n_inside = len(occurrences(program, pair.second.call, name))
        alone = len(group) == 1 and len(occurrences(program, scope.node, name)) == n_inside + 1
        if alone and integer(group[0].value) is not None and isinstance(group[0].statement, cst.Assign):
            found.append(group[0].statement)
    return found


def _line_of(program: Program, node: cst.CSTNode) -> Span:
    """The lines of a statement that has them for itself."""
    line = next(n for n in (node, *program.ancestors(node)) if isinstance(n, cst.SimpleStatementLine))
    start, end = program.span(line)
    source = program.source
    return Span(source.rfind("\n", 0, start) + 1, min(line_end(source, end) + 1, len(source)))

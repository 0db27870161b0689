"""How a launch comes by the value of a tile parameter, and how to give it another without breaking the grid.

The shapes that host code takes in practice: a literal at the launch, a name bound once, a name out of a tuple that a
helper returns, a parameter of the host function, a constant of the module, an attribute, an entry of a mapping that is
passed with `**`, a default of the kernel. Where programs are numbered by tile the grid must follow, so an edit is only
offered where the grid reads the same name, the launch's own meta-parameter, or the same literal.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from islands.operators.structural.analysis import Launch, Program, Scope, descendants, dotted_name, integer, names_in
from islands.operators.structural.names import Binding, bindings, statement_beside
from islands.operators.structural.places import Place, Slot, Value, rebind_after, rebind_first, string_value, value_at

_MAX_DEPTH = 4


def tile_value(program: Program, launch: Launch, parameter: str, grid_must_follow: bool) -> Value | None:
    """Where the value of a kernel's parameter is bound, or None where another value would break the launch."""
    arg = launch.arguments.get(parameter)
    if arg is None:
        return _value_not_passed(program, launch, parameter, grid_must_follow)
    follows = GridView(program, launch)
    node = arg.value
    name = dotted_name(node)
    if name:
        value = _value_of_name(program, launch, name)
        if value is not None and not (grid_must_follow and not follows.reads(name, parameter)):
            return value
        return None if grid_must_follow and not follows.reads_meta(parameter) else value_at(program, node)
    return _value_at_launch(program, launch, node, parameter, follows if grid_must_follow else None)


class GridView:
    """What the grid of a launch is computed from."""

    def __init__(self, program: Program, launch: Launch) -> None:
        self.program = program
        self.nodes = [
            node
            for part in launch.grid
            for node in _grid_expressions(program, launch.scope, part, launch.call, _MAX_DEPTH)
        ]

    def reads(self, name: str, parameter: str) -> bool:
        """Whether the grid changes with this name, or with the launch's own parameter."""
        return any(name in dotted_names(node) for node in self.nodes) or self.reads_meta(parameter)

    def reads_meta(self, parameter: str) -> bool:
        return any(string_value(n) == parameter for node in self.nodes for n in descendants(node))

    def same_text(self, text: str) -> list[cst.CSTNode]:
        """The expressions of the grid that are written just so."""
        found = [n for node in self.nodes for n in descendants(node) if isinstance(n, cst.Integer | cst.Call)]
        return [n for n in found if self.program.text(n) == text]


def dotted_names(node: cst.CSTNode) -> set[str]:
    """The names and dotted names in a piece of code."""
    return names_in(node) | {dotted_name(n) for n in descendants(node) if isinstance(n, cst.Attribute)}


def _grid_expressions(
    program: Program, scope: Scope, node: cst.CSTNode, before: cst.CSTNode, depth: int
) -> Iterator[cst.CSTNode]:
    """The grid expression, then what its names are computed from."""
    yield node
    if depth == 0:
        return
    local = bindings(program, scope)
    limit = program.span(before).start
    for name in sorted(names_in(node)):
        for binding in local.get(name, []):
            if binding.value is not None and program.span(binding.statement).start < limit:
                yield from _grid_expressions(program, scope, binding.value, binding.statement, depth - 1)
        inner = next((s for s in program.scopes if s.parent is scope and s.name == name), None)
        if inner is not None:
            yield inner.node


def _value_of_name(program: Program, launch: Launch, name: str) -> Value | None:
    if "." in name:
        return _value_of_attribute(program, launch, name)
    scope: Scope | None = launch.scope
    user: cst.CSTNode = launch.call
    while scope is not None:
        local = bindings(program, scope).get(name, [])
        if local:
            return _value_of_bindings(program, scope, local, user)
        if scope.parameter(name) is not None:
            return _value_of_parameter(program, scope, name)
        user, scope = scope.node, scope.parent
    return None


def _value_of_bindings(program: Program, scope: Scope, local: list[Binding], user: cst.CSTNode) -> Value | None:
    """Replaces the last assignment that the launch can see where it always happens, else adds one after it."""
    if scope.parent is None:
        alone = len(local) == 1 and local[0].value is not None
        return _value_in_place(program, scope, local[0].value) if alone and local[0].value is not None else None
    seen = [b for b in local if program.span(b.statement).start < program.span(user).start]
    if not seen or any(isinstance(b.statement, cst.AugAssign | cst.For) for b in seen):
        return None
    last = seen[-1]
    statement = statement_beside(program, last.statement, user)
    if statement is None:
        return None
    if last.value is not None and statement_beside(program, last.statement, last.statement) is statement:
        return _value_in_place(program, scope, last.value)
    return Value(None, rebind_after(program, statement, last.name))


def _value_in_place(program: Program, scope: Scope, node: cst.BaseExpression) -> Value | None:
    """An expression that is a tile; for `tl.constexpr(8)` what is in the parentheses."""
    if isinstance(node, cst.Call) and program.qualified(node.func).endswith(".constexpr") and node.args:
        node = node.args[0].value
    if scope.parent is None and integer(node) is None:
        return None
    if isinstance(node, cst.Tuple | cst.List | cst.Dict | cst.Lambda):
        return None
    return value_at(program, node)


def _value_of_parameter(program: Program, scope: Scope, name: str) -> Value | None:
    """A parameter of the host function: its default when nobody passes it, else a new binding in the first line."""
    parameter = scope.parameter(name)
    if parameter is None or not isinstance(scope.node, cst.FunctionDef):
        return None
    if integer(parameter.default) is not None and not _is_passed(program, scope, name):
        assert parameter.default is not None
        return value_at(program, parameter.default)
    place = rebind_first(program, scope.node, name)
    return None if place is None else Value(None, place)


def _is_passed(program: Program, scope: Scope, name: str) -> bool:
    """Whether a call in the source hands this parameter to the function."""
    position = [p.name for p in scope.parameters].index(name) - (scope.class_name != "")
    for caller in program.scopes:
        for call in caller.all(cst.Call):
            if dotted_name(call.func).rpartition(".")[2] != scope.name:
                continue
            named = any(a.keyword is not None and a.keyword.value == name for a in call.args)
            if named or any(a.star for a in call.args) or len([a for a in call.args if not a.keyword]) > position:
                return True
    return False


def _value_of_attribute(program: Program, launch: Launch, name: str) -> Value | None:
    """`self.BLOCK`, set once in the class of the launch, in a method or in its body."""
    class_name = launch.scope.class_name
    found = [
        b
        for scope in program.scopes
        if scope.class_name == class_name and scope.parent is not None
        for b in bindings(program, scope).get(name, [])
    ]
    if not found and class_name in program.classes:
        found = _class_level(program, program.classes[class_name], name.rpartition(".")[2])
    if len(found) != 1 or found[0].value is None:
        return None
    return value_at(program, found[0].value) if integer(found[0].value) is not None else None


def _class_level(program: Program, node: cst.ClassDef, name: str) -> list[Binding]:
    lines = {id(s) for line in node.body.body if isinstance(line, cst.SimpleStatementLine) for s in line.body}
    return [b for b in bindings(program, program.root).get(name, []) if id(b.statement) in lines]


def _value_at_launch(
    program: Program, launch: Launch, node: cst.BaseExpression, parameter: str, grid: GridView | None
) -> Value | None:
    """A literal or a call at the launch; the same text in the grid changes with it."""
    value = value_at(program, node)
    if grid is None or grid.reads_meta(parameter):
        return value
    text = program.text(node)
    rivals = [p for p, a in launch.arguments.items() if p != parameter and program.text(a.value) == text]
    same = grid.same_text(text)
    if not same or rivals:
        return None
    spans = sorted({program.span(n) for n in same})
    return value._replace(place=Place((*value.place.slots, *(Slot(s.start, s.end) for s in spans))))


def _value_not_passed(program: Program, launch: Launch, parameter: str, grid_must_follow: bool) -> Value | None:
    """A value out of a `**mapping`, or the default of the kernel."""
    if grid_must_follow and not GridView(program, launch).reads_meta(parameter):
        return None
    starred = [a for a in launch.call.args if a.star == "**"]
    for arg in starred:
        node = mapping_entry(program, launch, arg.value, parameter)
        if node is not None:
            return value_at(program, node)
    if starred or any(a.star for a in launch.call.args) or launch.kernel is None:
        return None
    known = launch.kernel.parameter(parameter)
    if known is None or known.default is None or len(program.launches_of(launch.kernel)) > 1:
        return None
    return value_at(program, known.default)


def mapping_entry(program: Program, launch: Launch, node: cst.CSTNode, key: str) -> cst.BaseExpression | None:
    """The value of a key of a mapping that is written out: `{"BLOCK": 128}`, `dict(BLOCK=128)`, or a name of one."""
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.DictElement) and string_value(element.key) == key:
                return element.value
            if isinstance(element, cst.StarredDictElement):
                inner = mapping_entry(program, launch, element.value, key)
                if inner is not None:
                    return inner
    if isinstance(node, cst.Call) and dotted_name(node.func) == "dict":
        return next((a.value for a in node.args if a.keyword is not None and a.keyword.value == key), None)
    if isinstance(node, cst.Name):
        for scope in (launch.scope, program.root):
            local = bindings(program, scope).get(node.value, [])
            if len(local) == 1 and local[0].value is not None:
                return mapping_entry(program, launch, local[0].value, key)
    return None

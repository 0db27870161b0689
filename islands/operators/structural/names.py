"""Where names are bound, and which names depend on what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, dotted_name, names_in

_BLOCKS = (cst.IndentedBlock, cst.Module)


class Binding(NamedTuple):
    """One place where a scope gives a name a value. `value` is None where it is not the whole right side."""

    name: str
    statement: cst.CSTNode
    value: cst.BaseExpression | None
    sources: frozenset[str]  # the names that the value is computed from


def bindings(program: Program, scope: Scope) -> dict[str, list[Binding]]:
    """Every binding of a scope by name, dotted names of attributes included, in order of the text."""
    return program.derived(("bindings", id(scope)), lambda: _collect(program, scope))


def _collect(program: Program, scope: Scope) -> dict[str, list[Binding]]:
    found = [
        *(_from_targets([t.target for t in node.targets], node, node.value) for node in scope.all(cst.Assign)),
        *(_from_targets([n.target], n, n.value) for n in scope.all(cst.AnnAssign) if n.value is not None),
        *(_from_augmented(node) for node in scope.all(cst.AugAssign)),
        *(_from_targets([node.target], node, node.iter, whole=False) for node in scope.all(cst.For)),
        *(_from_targets([node.target], node, node.value) for node in scope.all(cst.NamedExpr)),
        *(_from_with(node) for node in scope.all(cst.With)),
    ]
    by_name: dict[str, list[Binding]] = {}
    for binding in sorted((b for group in found for b in group), key=lambda b: program.span(b.statement).start):
        by_name.setdefault(binding.name, []).append(binding)
    return by_name


def _from_targets(
    targets: Iterable[cst.CSTNode], statement: cst.CSTNode, value: cst.BaseExpression, whole: bool = True
) -> list[Binding]:
    sources = frozenset(names_in(value))
    result: list[Binding] = []
    for target in targets:
        if isinstance(target, cst.Tuple | cst.List):
            parts = [element.value for element in target.elements]
            result += _from_targets(parts, statement, value, whole=False)
        elif dotted_name(target):
            result.append(Binding(dotted_name(target), statement, value if whole else None, sources))
    return result


def _from_augmented(node: cst.AugAssign) -> list[Binding]:
    name = dotted_name(node.target)
    return [Binding(name, node, None, frozenset(names_in(node.value) | {name}))] if name else []


def _from_with(node: cst.With) -> list[Binding]:
    targets = [item.asname.name for item in node.items if item.asname is not None]
    return [b for item, t in zip(node.items, targets, strict=False) for b in _from_targets([t], node, item.item, False)]


def names_computed_from(program: Program, scope: Scope, is_source: Callable[[Binding], bool]) -> set[str]:
    """The names of a scope whose value depends on a binding for which `is_source` holds, however indirectly."""
    everything = [b for group in bindings(program, scope).values() for b in group]
    reached = {b.name for b in everything if is_source(b)}
    while True:
        more = {b.name for b in everything if b.name not in reached and b.sources & reached}
        if not more:
            return reached
        reached |= more


def statement_beside(program: Program, node: cst.CSTNode, other: cst.CSTNode) -> cst.CSTNode | None:
    """The statement around `node` that lies in a block around `other`: what can be followed by a new statement that
    `other` sees."""
    around = {id(a) for a in program.ancestors(other) if isinstance(a, _BLOCKS)}
    child = node
    for ancestor in program.ancestors(node):
        if isinstance(ancestor, _BLOCKS) and id(ancestor) in around:
            return child
        child = ancestor
    return None

"""Sizes that Inductor writes into a kernel (`r0_numel = 65536`, over the parameter of that name) as compile-time
parameters: the same code, in which a loop's length is what the launch passes, as programs that people write have it."""

from __future__ import annotations

import ast

from evaluators.decomposition.splice import Edit


def fixed_sizes(function: ast.FunctionDef) -> list[Edit]:
    """The edits that make such parameters of a kernel `tl.constexpr` and leave out what is bound over them."""
    parameters = {argument.arg: argument for argument in function.args.args if argument.annotation is None}
    edits = []
    for statement in function.body[:-1]:  # something has to stay
        name = _bound_size(statement)
        if name in parameters and _n_bindings(function, name) == 1:
            edits.append(Edit.of(parameters[name], f"{name}: tl.constexpr"))
            edits.append(Edit(statement.lineno, 0, statement.lineno + 1, 0, ""))
    return edits


def _bound_size(statement: ast.stmt) -> str:
    """The name in `xnumel = 2048`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target, value = statement.targets[0], statement.value
    is_number = isinstance(value, ast.Constant) and type(value.value) is int
    return target.id if is_number and isinstance(target, ast.Name) else ""


def _n_bindings(function: ast.FunctionDef, name: str) -> int:
    found = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return sum(node.id == name for node in found)

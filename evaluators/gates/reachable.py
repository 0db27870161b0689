"""Which top-level code of a program can run when its entry point is called."""

from __future__ import annotations

import ast


def reachable_statements(tree: ast.Module, entry_point: str) -> list[ast.stmt]:
    """Top-level statements that run at import, and the definitions that the entry point leads to by name.

    Sound because the policy refuses what finds a function without naming it (getattr, globals, eval).
    """
    definitions = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    always = [s for s in tree.body if s not in definitions.values()]
    found: dict[str, ast.stmt] = {}
    waiting = [entry_point, *(name for s in always for name in _names_in(s))]
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found[name] = definitions[name]
            waiting += _names_in(definitions[name])
    return [s for s in tree.body if s in always or s in found.values()]


def _names_in(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]


def is_kernel(node: ast.AST) -> bool:
    """Is this a function under @triton.jit (or @jit), in whatever company?"""
    if not isinstance(node, ast.FunctionDef):
        return False
    names = [dotted_name(d.func if isinstance(d, ast.Call) else d) or "" for d in node.decorator_list]
    return any(name.rsplit(".", 1)[-1] == "jit" for name in names)


def dotted_name(node: ast.AST) -> str | None:
    """ "torch.nn.Module" for such an expression, None for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else None
    return None

"""Which top-level code of a program can run when its entry point is called, and what its imports bind."""

from __future__ import annotations

import ast
from collections.abc import Mapping

JIT = frozenset({"triton.jit", "triton.language.jit"})
USUAL_NAMES = {"triton": "triton", "tl": "triton.language", "jit": "triton.jit"}
_MAIN_TEST = ast.dump(ast.parse('__name__ == "__main__"', mode="eval").body)


def reachable_statements(tree: ast.Module, entry_point: str) -> list[ast.stmt]:
    """Top-level statements that run at import, and the definitions that the entry point leads to by name.

    Sound because the policy refuses what finds a function without naming it (getattr, globals, eval). What a file does
    as the main program is left out: a candidate never is.
    """
    definitions = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    always = [s for s in tree.body if s not in definitions.values() and not _is_main_block(s, tree)]
    found: dict[str, ast.stmt] = {}
    waiting = [entry_point, *(name for s in always for name in _names_in(s))]
    waiting += [name for name in definitions if name.startswith("__")]  # Python calls these by itself
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found[name] = definitions[name]
            waiting += _names_in(definitions[name])
    return [s for s in tree.body if s in always or s in found.values()]


def _names_in(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]


def _is_main_block(statement: ast.stmt, tree: ast.Module) -> bool:
    if not isinstance(statement, ast.If) or statement.orelse or ast.dump(statement.test) != _MAIN_TEST:
        return False
    stored = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    return not any(name.id == "__name__" for name in stored)


def is_kernel(node: ast.AST, aliases: Mapping[str, str] = USUAL_NAMES) -> bool:
    """Is this a function under Triton's own @triton.jit, in whatever company?

    Args:
        aliases: what imports bind, from `module_aliases` where the text is not trusted.
    """
    if not isinstance(node, ast.FunctionDef):
        return False
    names = [dotted_name(d.func if isinstance(d, ast.Call) else d) or "" for d in node.decorator_list]
    return any(full_name(name, aliases) in JIT for name in names)


def module_aliases(tree: ast.Module) -> dict[str, str]:
    """What the names that imports bind stand for: {"tl": "triton.language", "next": "triton.next_power_of_2"}.

    A name that the file itself defines at the top level is not among them.
    """
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    defined = {s.name for s in ast.walk(tree) if isinstance(s, ast.FunctionDef | ast.ClassDef) and s in tree.body}
    return {name: full for name, full in aliases.items() if name not in defined}


def full_name(name: str, aliases: Mapping[str, str]) -> str:
    """A dotted name, its first part resolved ("F.relu" is torch.nn.functional.relu); empty where no import bound it."""
    root, _, rest = name.partition(".")
    if root not in aliases:
        return ""
    return f"{aliases[root]}.{rest}" if rest else aliases[root]


def dotted_name(node: ast.AST) -> str | None:
    """ "torch.nn.Module" for such an expression, None for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else None
    return None

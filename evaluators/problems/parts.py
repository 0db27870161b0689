"""Parts of a file: what a definition needs, and the file without what it does not need."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def names_in(node: ast.AST) -> set[str]:
    """Every name that a piece of code mentions."""
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def needed_names(tree: ast.Module, roots: Iterable[str]) -> set[str]:
    """The roots and every module-level name that they need, through functions, classes and assignments alike."""
    needs: dict[str, set[str]] = {}
    for statement in tree.body:
        for name in _defined(statement):
            needs.setdefault(name, set()).update(names_in(statement))
    found: set[str] = set()
    waiting = [name for name in roots if name in needs]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs[name] & needs.keys()
    return found


def extract(source: str, roots: Iterable[str]) -> str:
    """The source without the definitions and constants that the roots do not need, and without a main block.

    Imports and statements that define nothing stay, with what they need. What is left out becomes blank lines, so that
    line numbers stay those of the source.
    """
    tree = ast.parse(source)
    plain = [s for s in tree.body if not _defined(s) and not _is_main_block(s)]
    needed = needed_names(tree, [*roots, *(name for s in plain for name in names_in(s))])
    lines = source.splitlines(keepends=True)
    for statement in tree.body:
        names = _defined(statement)
        if (names and not names & needed) or _is_main_block(statement):
            for line in range(_first_line(statement) - 1, statement.end_lineno or statement.lineno):
                lines[line] = "\n"
    return "".join(lines)


def squeezed(source: str) -> str:
    """The source with at most two blank lines in a row and none at its ends."""
    lines: list[str] = []
    for line in source.splitlines():
        if line.strip() or (lines and any(before.strip() for before in lines[-2:])):
            lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"


def _defined(statement: ast.stmt) -> set[str]:
    """The names that a function, a class or an assignment to plain names defines; of other statements, none."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    if all(isinstance(node, ast.Name | ast.Tuple) for node in targets):
        return {name for target in targets for name in names_in(target)}
    return set()


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _is_main_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in names_in(statement.test)

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
        for name in _defined(statement) | _imported(statement):
            needs.setdefault(name, set()).update(names_in(statement))
    found: set[str] = set()
    waiting = [name for name in roots if name in needs]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs[name] & needs.keys()
    return found


def extract(source: str, roots: Iterable[str], *, keeps_imports: bool = True) -> str:
    """The source without the definitions and constants that the roots do not need, and without a main block.

    Statements that define nothing stay, with what they need. What is left out becomes blank lines, so that line numbers
    stay those of the source.

    Args:
        keeps_imports: whether imports stay though nothing names what they bind, as those do that register something.
    """
    tree = ast.parse(source)
    plain = [s for s in tree.body if not _defined(s) and not _is_main_block(s)]
    needed = needed_names(tree, [*roots, *(name for s in plain for name in names_in(s))])
    lines = source.splitlines(keepends=True)
    shared = _shared_lines(tree)
    for statement in tree.body:
        if statement.lineno in shared or statement.end_lineno in shared:
            continue
        kept = statement if keeps_imports else _reduced(statement, needed)
        names = _defined(statement)
        if kept is None or (names and not names & needed) or _is_main_block(statement):
            _replace(lines, statement, "\n")
        elif kept is not statement:
            _replace(lines, statement, ast.unparse(kept) + "\n")
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


def _imported(statement: ast.stmt) -> set[str]:
    """The names that an import binds; a star binds nobody knows what."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return set()
    return {_bound(alias) for alias in statement.names} - {"*"}


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _reduced(statement: ast.stmt, needed: set[str]) -> ast.stmt | None:
    """An import without the names that nothing needs, None where none is left; other statements as they are."""
    if not isinstance(statement, ast.Import | ast.ImportFrom) or getattr(statement, "module", "") == "__future__":
        return statement
    kept = [alias for alias in statement.names if alias.name == "*" or _bound(alias) in needed]
    if len(kept) == len(statement.names):
        return statement
    if isinstance(statement, ast.Import):
        return ast.Import(names=kept) if kept else None
    return ast.ImportFrom(module=statement.module, names=kept, level=statement.level) if kept else None


def _shared_lines(tree: ast.Module) -> set[int | None]:
    """Lines that hold more than one statement: what is left out takes whole lines with it."""
    pairs = zip(tree.body, tree.body[1:], strict=False)
    return {after.lineno for before, after in pairs if before.end_lineno == after.lineno}


def _replace(lines: list[str], statement: ast.stmt, text: str) -> None:
    """Puts a line in the place of a statement, and blank ones after it."""
    first, end = _first_line(statement) - 1, statement.end_lineno or statement.lineno
    lines[first:end] = [text, *["\n"] * (end - first - 1)]


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _is_main_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in names_in(statement.test)

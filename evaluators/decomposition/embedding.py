"""A program as a piece of a larger file: its top-level names get a prefix, so that several can stand side by side."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.splice import Edit, spliced

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Embedded(NamedTuple):
    """Import statements, and the rest with `prefix` before each of its top-level names."""

    imports: tuple[str, ...]
    body: str


def embedded(source: str, prefix: str) -> Embedded:
    """A program ready to stand in a larger file.

    Raises:
        DecompositionError: it has statements at the top level that are neither definitions nor imports.
    """
    tree = ast.parse(source)
    for statement in tree.body:
        if not isinstance(statement, _KEPT) and not _is_docstring(statement):
            raise DecompositionError(f"line {statement.lineno}: a program for a part may only define and import")
    names = {name for statement in tree.body for name in _defined(statement)}
    renamer = _Renamer(names, prefix, source)
    renamer.visit(tree)
    lines = spliced(source, renamer.edits).splitlines()
    imports = [s for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom | ast.Try)]
    texts = tuple(ast.unparse(statement) for statement in imports if not _is_future(statement))
    for statement in tree.body:
        if statement in imports or _is_docstring(statement):
            for number in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
                lines[number] = ""
    return Embedded(texts, "\n".join(lines).strip("\n") + "\n")


_KEPT = (
    ast.FunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
    ast.Import,
    ast.ImportFrom,
    ast.Try,
)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


class _Renamer(ast.NodeVisitor):
    """Notes an edit for every use of a name at module level; what a function binds itself is another name."""

    def __init__(self, names: set[str], prefix: str, source: str) -> None:
        self.edits: list[Edit] = []
        self._names = names
        self._prefix = prefix
        self._lines = source.splitlines()
        self._bound: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._names and not any(node.id in bound for bound in self._bound):
            self.edits.append(Edit.of(node, self._prefix + node.id))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not self._bound:
            self._rename_definition(node, "def ")
        for outside in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(outside)
        for argument in _arguments(node):
            if argument.annotation:
                self.visit(argument.annotation)
        if node.returns:
            self.visit(node.returns)
        self._inside(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not self._bound:
            self._rename_definition(node, "class ")
        for outside in [*node.decorator_list, *node.bases]:
            self.visit(outside)
        own = {name for statement in node.body for name in _defined(statement)}
        for statement in node.body:
            # methods do not see the names of the class body, its other statements do
            self._bound.append(set() if isinstance(statement, ast.FunctionDef) else own)
            self.visit(statement)
            self._bound.pop()

    def _inside(self, node: _Function, body: Sequence[ast.AST]) -> None:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._bound.append(stored | {a.arg for a in _arguments(node)})
        for statement in body:
            self.visit(statement)
        self._bound.pop()

    def _rename_definition(self, node: ast.FunctionDef | ast.ClassDef, keyword: str) -> None:
        line = self._lines[node.lineno - 1]
        column = line.index(node.name, line.index(keyword, node.col_offset) + len(keyword))
        end = column + len(node.name)
        self.edits.append(Edit(node.lineno, column, node.lineno, end, self._prefix + node.name))


def _arguments(node: _Function) -> list[ast.arg]:
    return [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]

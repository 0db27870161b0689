"""A problem's file as text: its definitions, and errors that say where."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from db.errors import EvolveError, ProblemError

Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceFile:
    """A parsed file. `label` is how errors call it."""

    def __init__(self, text: str, label: str, error: type[EvolveError] = ProblemError) -> None:
        """
        Raises:
            ProblemError (or `error`): the text is not Python; the message has the line.
        """
        self.text = text
        self.label = label
        self._error = error
        try:
            self.tree = ast.parse(text)
            ast.unparse(self.tree)  # every id is a hash of this
        except (RecursionError, MemoryError) as cause:
            raise self.error("an expression is nested too deeply to be read", None, "write it in steps") from cause
        except (SyntaxError, ValueError) as cause:
            line = getattr(cause, "lineno", None)
            message = getattr(cause, "msg", None) or str(cause)
            raise self.error(f"not Python: {message}", line, "the file must parse as Python 3.11 or newer") from cause

    @classmethod
    def read(cls, path: Path, error: type[EvolveError] = ProblemError) -> SourceFile:
        """Reads a file as UTF-8.

        Raises:
            ProblemError (or `error`): it cannot be read, is a folder, or is no text.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as cause:
            more = "; evolve bench takes a folder of modules" if path.is_dir() else ""
            raise error(f"cannot read {path}: {cause.strerror}", f"give the path of a Python file{more}") from cause
        except UnicodeDecodeError as cause:
            raise error(f"{path} is no text file", "give the path of a Python file in UTF-8") from cause
        return cls(text, str(path), error)

    def error(self, message: str, line: int | None = None, hint: str = "") -> EvolveError:
        """An error about this file: "my.py:12: message"."""
        where = self.label if line is None else f"{self.label}:{line}"
        return self._error(f"{where}: {message}", hint)

    def defines(self, name: str) -> bool:
        """Whether something at module level gives the name a meaning, an import or an assignment included."""
        return any(name in _bound_names(statement) for statement in self.tree.body)

    def function(self, name: str) -> Function | None:
        """The module-level function of that name."""
        return next((n for n in self.tree.body if isinstance(n, Function) and n.name == name), None)

    def class_(self, name: str) -> ast.ClassDef | None:
        """The module-level class of that name."""
        return next((c for c in self.classes() if c.name == name), None)

    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def constant(self, name: str) -> ast.expr | None:
        """The expression that a plain module-level assignment gives a name."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign) and name in _bound_names(statement):
                return statement.value
        return None


def method(class_: ast.ClassDef, name: str) -> Function | None:
    """A method that the class itself defines."""
    return next((n for n in class_.body if isinstance(n, Function) and n.name == name), None)


def n_arguments(function: Function, is_method: bool) -> tuple[int, int | None]:
    """The fewest and the most positional arguments that a call can pass; None for no limit."""
    arguments = function.args
    n_all = len(arguments.posonlyargs) + len(arguments.args) - is_method
    return n_all - len(arguments.defaults), None if arguments.vararg else n_all


def returned_list(function: Function) -> ast.List | ast.Tuple | None:
    """The list that a function returns, when its only `return` spells one out without stars."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    if isinstance(value, ast.List | ast.Tuple) and not _has_star(value.elts):
        return value
    return None


def _has_star(elements: Sequence[ast.expr]) -> bool:
    return any(isinstance(element, ast.Starred) for element in elements)


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

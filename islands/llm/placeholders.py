"""Code that an answer left out: an ellipsis in the place of lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from islands.llm.refusals import Refusal, RefusalKind

LONGEST = 200  # characters of a line that stands for others
_DOTS = r"(?:\.{3,}|…)"
_LEFT_OUT = r"\b(?:rest|remaining|existing|unchanged|same as|omitted)\b"
_LINE = re.compile(
    rf"^\s*(?:{_DOTS}|\[\s*{_DOTS}\s*\]|#\s*\[?{_DOTS}.*|#.*{_LEFT_OUT}.*{_DOTS}\s*|//\s*{_DOTS}.*"
    rf"|#\s*\(?(?:the\s+)?(?:rest|remainder)\b.*\b(?:unchanged|same|as before)\b.*)$",
    re.IGNORECASE,
)


def placeholder_in(lines: Iterable[str], parent_lines: Iterable[str]) -> str:
    """The first line that stands for code that is not there; empty where there is none, or where the parent has it."""
    known = {line.strip() for line in parent_lines}
    short = (line for line in lines if len(line) <= LONGEST)
    return next((line.strip() for line in short if _LINE.match(line) and line.strip() not in known), "")


def n_ellipses(tree: ast.AST) -> int:
    """How often `...` stands for a statement or an argument; in a subscript it is an index."""
    return sum(
        isinstance(value, ast.Constant) and value.value is Ellipsis
        for node in ast.walk(tree)
        for value in ([node.value] if isinstance(node, ast.Expr) else node.args if isinstance(node, ast.Call) else [])
    )


def left_out(what: str, where: str) -> Refusal:
    return Refusal(
        RefusalKind.ELLIPSIS,
        f"{where} leaves out code ({what!r}). Nothing fills it in: write every line, or smaller blocks.",
    )

"""Replacing pieces of Python text by the positions of their nodes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Text in the place of what stands between two positions. Lines count from 1; columns are bytes, as in `ast`."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str

    @classmethod
    def of(cls, node: ast.expr | ast.arg, text: str) -> Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return cls(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)


def spliced(source: str, edits: Sequence[Edit]) -> str:
    """The source with the edits made. They must not overlap."""
    lines = source.encode().splitlines(keepends=True)
    for edit in sorted(set(edits), reverse=True):
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        text = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [text]
    return b"".join(lines).decode()


def segment(source: str, function: ast.FunctionDef, edits: Sequence[Edit] = ()) -> str:
    """The text of a function without its decorators, with the edits made that lie inside it."""
    assert function.end_lineno is not None
    lines = source.splitlines(keepends=True)[function.lineno - 1 : function.end_lineno]
    shift = function.lineno - 1
    own = [e._replace(line=e.line - shift, end_line=e.end_line - shift) for e in edits]
    return spliced("".join(lines), own)

"""Sources taken apart piece by piece: what two programs have in common is parsed once.

libcst takes 5 to 20 ms for a program, and an edit leaves most of one alone. Trees of libcst never change, so programs
share those of the pieces that they share; where a piece stands is each program's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState

from db.hashing import canonical_source, pieces_of

MAX_KEPT_PARTS = 512  # about 0.2 MB each

_LAYOUT_FIELD = re.compile(
    "whitespace.*|[lr](par|bracket|brace)|leading_lines|lines_after_decorators|trailing_whitespace|header|footer|comma"
    "|semicolon|equal|colon|operator|asynchronous|(default_)?indent|default_newline|encoding"
)

Nodes = dict[type[cst.CSTNode], list[cst.CSTNode]]
"""Nodes by exactly their type, in order of the text."""


class ScopePart(NamedTuple):
    """A function of a part. `parent` is the index among the part's functions of the one around it; -1 for none."""

    node: cst.FunctionDef
    parent: int
    class_name: str
    nodes: Nodes


class Part:
    """Statements at the top level of a source, with what lies in them. `spans` has where nodes stand: start and end in
    characters from the start of the part."""

    def __init__(self, module: cst.Module) -> None:
        self.statements = module.body
        self.spans = _spans_of(module)
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}  # of what lies in a statement
        self.outside: Nodes = {}  # what lies in no function
        self.scopes: list[ScopePart] = []
        self.classes: dict[str, cst.ClassDef] = {}
        for statement in self.statements:
            self._add(statement, -1, "")

    def _add(self, node: cst.CSTNode, scope: int, class_name: str) -> None:
        nodes = self.scopes[scope].nodes if scope >= 0 else self.outside
        nodes.setdefault(type(node), []).append(node)
        if isinstance(node, cst.FunctionDef):
            self.scopes.append(ScopePart(node, scope, class_name, {}))
            scope = len(self.scopes) - 1
        elif isinstance(node, cst.ClassDef):
            class_name = node.name.value
            self.classes[class_name] = node
        for child in children(node):
            self.parents[child] = node
            self._add(child, scope, class_name)


class Placed(NamedTuple):
    """A part, and the index of its first character in a source."""

    start: int
    part: Part


def parts_of(source: str) -> list[Placed]:
    """The parts of a source, in order.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: what Python's parser raises.
        ParserSyntaxError, CSTValidationError, KeyError: what libcst raises.
    """
    pieces = pieces_of(source)
    if len(set(pieces)) == len(pieces):  # else one node would stand in two places
        try:
            return _placed(pieces)
        except SyntaxError:  # pieces that were cut within a statement
            pass
    return _placed([source])


def _placed(pieces: Sequence[str]) -> list[Placed]:
    placed: list[Placed] = []
    start = 0
    for piece in pieces:
        placed.append(Placed(start, _part(piece)))
        start += len(piece)
    return placed


@lru_cache(maxsize=MAX_KEPT_PARTS)
def _part(text: str) -> Part:
    canonical_source(text)  # libcst can take seconds to say that a text is no Python, and what was named is known to be
    return Part(cst.parse_module(text))


# -------------------------------------------------------------------------------------------------------------- walking


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = kind.__dataclass_fields__
    return tuple(n for n in names if not _LAYOUT_FIELD.fullmatch(n))


@cache
def _is_node(kind: type) -> bool:
    """Asked of types: `isinstance` of a node is slow, because their class is abstract."""
    return issubclass(kind, cst.CSTNode)


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes directly in a node, without white space and punctuation."""
    found: list[cst.CSTNode] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, list | tuple):
            found += [item for item in value if _is_node(item.__class__)]
        elif _is_node(value.__class__):
            found.append(value)
    return found


# ------------------------------------------------------------------------------------------------------------ positions


def _spans_of(module: cst.Module) -> dict[int, tuple[int, int]]:
    """Where every node stands, by its id: libcst says it only while it writes a tree out."""
    writing = _Writing(module.default_indent, module.default_newline)
    module._codegen(writing)
    return writing.spans


class _Writing(CodegenState):
    """Writes nothing and counts characters: what libcst's own provider of spans does, in a third of its time."""

    def __init__(self, default_indent: str, default_newline: str) -> None:
        super().__init__(default_indent, default_newline)
        self.position = 0
        self.spans: dict[int, tuple[int, int]] = {}
        self._starts: list[int] = []

    def add_indent_tokens(self) -> None:
        self.position += sum(map(len, self.indent_tokens))

    def add_token(self, value: str) -> None:
        self.position += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:  # noqa: ARG002
        self._starts.append(self.position)

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._starts.pop()
        self.spans.setdefault(id(node), (start, self.position))  # parentheses do not count where it was recorded

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> AbstractContextManager[None]:
        return _Recorded(self, node, start_node, end_node)


class _Recorded(AbstractContextManager[None]):
    """Records where a node stands, white space and parentheses around it left out."""

    __slots__ = ("_end_node", "_node", "_start", "_start_node", "_writing")

    def __init__(
        self, writing: _Writing, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None
    ) -> None:
        self._writing = writing
        self._node = node
        self._start_node = start_node
        self._end_node = end_node

    def __enter__(self) -> None:
        self._start = self._writing.position

    def __exit__(self, *_: object) -> None:
        spans = self._writing.spans
        start = self._start if self._start_node is None else spans[id(self._start_node)][0]
        end = self._writing.position if self._end_node is None else spans[id(self._end_node)][1]
        spans[id(self._node)] = (start, end)

"""Content hashes: a program is named by what it says, not by how it is laid out."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

# where statements stand; a docstring is nowhere else, and walking every expression takes as long as parsing
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_LINE_END = re.compile(r"\r\n|\r|\n")  # as Python's parser counts lines
_MAY_BE_F_STRING = re.compile(r"""\b(f|fr|rf)["']""", re.IGNORECASE)
_DOCSTRING = re.compile(r"""(?:[ \t]*(?:#[^\n]*)?\n)*[ru]?(\"\"\"|''')[\s\S]*?\1""", re.IGNORECASE)
_STATEMENT = re.compile(r"^(?!(?:else|elif|except|finally)\b)[^\s#)\]}]", re.MULTILINE)

MAX_KEPT_STATEMENTS = 4096
_statements: dict[tuple[str, int, int | None], str] = {}  # canonical text by what is written, and where in its lines


class _Piece(NamedTuple):
    """Lines of a source that are statements at the top level by themselves."""

    statements: tuple[str, ...]  # canonical
    opens_with_string: bool  # a docstring, where no statement comes before


_pieces: dict[str, _Piece | None] = {}  # by what is written; None where it cannot stand alone


@lru_cache(maxsize=1024)
def canonical_source(source: str) -> str:
    """The source with comments, formatting and docstrings taken out, and f-strings written as calls of `format`.

    `ast.unparse(ast.parse(source))` is equal on Python 3.11 to 3.13 (held by a golden-hash test) for all but
    f-strings, whose quotes it chooses anew in 3.12; `ast.dump` and token streams differ everywhere.

    Raises:
        SyntaxError: the source does not parse.
    """
    found = [_piece(text) for text in pieces_of(source)]
    pieces = [piece for piece in found if piece is not None and piece.statements]
    if None in found:
        pieces = [_parsed(source)]
    statements = [statement for piece in pieces for statement in piece.statements]
    return "\n".join(statements[1:] if pieces and pieces[0].opens_with_string else statements)


def pieces_of(source: str) -> list[str]:
    """The source, cut wherever a line at the top level seems to begin a statement.

    Where every piece parses by itself, the source means what they mean one after the other: each ends outside of every
    bracket and string, and no statement can go on with a line that is one of its own.
    """
    head = _DOCSTRING.match(source)
    starts = [found.start() for found in _STATEMENT.finditer(source, head.end() if head else 0)]
    decorated = {after for before, after in pairwise(starts) if source[before] == "@"}
    cuts = [0, *(start for start in starts if start > 0 and start not in decorated), len(source)]
    return [source[start:end] for start, end in pairwise(cuts)]


def _piece(text: str) -> _Piece | None:
    """What is written alike is parsed once: an edit leaves most of a program alone."""
    if text not in _pieces:
        if len(_pieces) >= MAX_KEPT_STATEMENTS:
            _pieces.clear()
        try:
            _pieces[text] = _parsed(text)
        except (SyntaxError, ValueError, RecursionError):
            _pieces[text] = None
    return _pieces[text]


def _parsed(text: str) -> _Piece:
    tree = ast.parse(text)
    lines = _LINE_END.split(text)
    statements = tuple(_canonical_statement(statement, lines) for statement in tree.body)
    return _Piece(statements, ast.get_docstring(tree, clean=False) is not None)


def _canonical_statement(statement: ast.stmt, lines: list[str]) -> str:
    """A statement at the top level. What is written alike is unparsed once: an edit leaves most of a program alone."""
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
    text = "\n".join(lines[first - 1 : statement.end_lineno])
    key = (text, statement.col_offset, statement.end_col_offset)  # several may share a line
    known = _statements.get(key)
    if known is None:
        if len(_statements) >= MAX_KEPT_STATEMENTS:
            _statements.clear()
        known = _statements[key] = _unparsed(statement, may_be_f_string=_MAY_BE_F_STRING.search(text) is not None)
    return known


def _unparsed(statement: ast.stmt, *, may_be_f_string: bool) -> str:
    blocks: list[ast.AST] = [statement]
    while blocks:
        node = blocks.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
        blocks += (child for field in _BLOCKS for child in getattr(node, field, ()))
    return ast.unparse(_FormatCalls().visit(statement) if may_be_f_string else statement)


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is None:
        return
    node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])


class _FormatCalls(ast.NodeTransformer):
    """Rewrites f"a{b!r:>{c}}" as ''.join(('a', format(repr(b), ''.join(('>', format(c)))))), which means the same."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        # Python 3.12 ends some format specs with an empty constant
        values = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
        parts = ast.Tuple(elts=[self.visit(value) for value in values], ctx=ast.Load())
        join = ast.Attribute(value=ast.Constant(value=""), attr="join", ctx=ast.Load())
        return ast.Call(func=join, args=[parts], keywords=[])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        value: ast.expr = self.visit(node.value)
        if node.conversion in _CONVERSIONS:
            value = _call(_CONVERSIONS[node.conversion], value)
        return _call("format", value, *([self.visit(node.format_spec)] if node.format_spec else []))


_CONVERSIONS = {ord("r"): "repr", ord("s"): "str", ord("a"): "ascii"}


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(arguments), keywords=[])


def content_hash(*parts: str) -> str:
    """The first 16 hex digits of the SHA-256 of the parts: 64 bits, enough for 1e8 programs at odds under 1e-3."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=2048)  # parsing costs a millisecond, and the same candidate is named at every step of its way
def program_id_of(source: str, entry_point: str) -> str:
    """The id of a program: 16 hex digits over its canonical source and its entry point.

    A source that does not parse is hashed as it stands, so that a broken proposal still has a name.
    """
    try:
        text = canonical_source(source)
    except (SyntaxError, ValueError, RecursionError):
        text = source
    return content_hash(text, entry_point)

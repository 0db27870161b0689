"""Python source and diffs as coloured HTML, line by line."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterator
from difflib import unified_diff

from markupsafe import Markup, escape

_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_MIDDLE", -1)}


def source_html(source: str) -> Markup:
    """The source with keywords, strings, numbers, comments and names in spans; as it stands if it does not parse."""
    source = source.strip("\n") + "\n"
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return escape(source)
    return Markup("").join(_spans(source, tokens))


def _spans(source: str, tokens: list[tokenize.TokenInfo]) -> Iterator[Markup]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    at, previous = 0, ""
    for token in tokens:
        begin, end = (starts[min(row - 1, len(starts) - 1)] + column for row, column in (token.start, token.end))
        css = _css_of(token, previous)
        previous = token.string.strip() or previous
        if not css or begin < at:
            continue
        yield escape(source[at:begin])
        yield Markup('<span class="{}">{}</span>').format(css, source[begin:end])
        at = end
    yield escape(source[at:])


def _css_of(token: tokenize.TokenInfo, previous: str) -> str:
    if token.type == tokenize.COMMENT:
        return "py-comment"
    if token.type in _STRINGS:
        return "py-string"
    if token.type == tokenize.NUMBER:
        return "py-number"
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "py-keyword"
    if token.type == tokenize.NAME and previous in {"def", "class", "@"}:
        return "py-name"
    return ""


def diff_lines(before: str, after: str, *, context: int = 3) -> list[tuple[str, str]]:
    """A unified diff as (kind, line) with kind `add`, `del`, `hunk` or `same`; empty when nothing differs."""
    old, new = before.strip("\n").splitlines(), after.strip("\n").splitlines()
    lines = list(unified_diff(old, new, lineterm="", n=context))[2:]
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    return [(kinds.get(line[:1], "same"), line) for line in lines]

"""Code fences of Markdown: what an answer quotes as code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 200  # characters of a line that opens or closes a fence
_FENCE = re.compile(r"^\s*(?P<mark>`{3,}|~{3,})\s*(?P<language>[^`]*)$")


class Fenced(NamedTuple):
    """One fenced text. `first` is the index of its first line, `language` in lower case."""

    language: str
    lines: list[str]
    first: int
    is_closed: bool

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def is_fence(line: str) -> bool:
    return _match(line) is not None


def fenced_texts(lines: Sequence[str]) -> list[Fenced]:
    """All of an answer, in order. A fence is closed by one of its kind that is as long, as in CommonMark."""
    found: list[Fenced] = []
    opening: re.Match[str] | None = None
    for index, line in enumerate(lines):
        fence = _match(line)
        if opening is None and fence:
            opening = fence
            found.append(Fenced(_language(fence), [], index + 1, is_closed=False))
        elif opening is not None and fence and _closes(fence, opening):
            found[-1] = found[-1]._replace(is_closed=True)
            opening = None
        elif opening is not None:
            found[-1].lines.append(line)
    return found


def _match(line: str) -> re.Match[str] | None:
    return _FENCE.match(line) if len(line) <= LONGEST else None


def _language(fence: re.Match[str]) -> str:
    words = fence["language"].split()
    return words[0].lower() if words else ""


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return not fence["language"].strip() and fence["mark"].startswith(opening["mark"])

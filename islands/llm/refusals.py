"""What becomes of a model's answer: a source, or a typed refusal whose words go back to the model once."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class RefusalKind(StrEnum):
    """Why an answer gives no program. Values appear in archives and reports."""

    EMPTY = "empty"
    CUT_OFF = "cut_off"  # by the token limit, inside a block or a program
    TOO_LONG = "too_long"
    NO_CODE = "no_code"
    OTHER_LANGUAGE = "other_language"
    OTHER_FORMAT = "other_format"  # a unified diff, a merge conflict
    MALFORMED_BLOCK = "malformed_block"
    EMPTY_SEARCH = "empty_search"
    ELLIPSIS = "ellipsis"  # code left out
    NOT_FOUND = "not_found"
    AMBIGUOUS = "ambiguous"  # the SEARCH text stands in the parent more than once
    INDENTATION = "indentation"
    OVERLAP = "overlap"  # two blocks edit the same lines
    OUTSIDE_EVOLVE_BLOCK = "outside_evolve_block"
    SEVERAL_PROGRAMS = "several_programs"
    NOT_PYTHON = "not_python"
    NO_ENTRY_POINT = "no_entry_point"
    UNCHANGED = "unchanged"
    MALFORMED_JSON = "malformed_json"
    NOT_AS_ASKED = "not_as_asked"  # JSON of another shape


class Refusal(NamedTuple):
    """`reason` tells the model what to do."""

    kind: RefusalKind
    reason: str


class Answer(NamedTuple):
    """A source that parses, defines the entry point, and differs from its parent."""

    source: str
    form: str  # "blocks" or "program"

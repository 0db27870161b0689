"""JSON in an answer: fenced or not, with prose around it, and with the commas that models leave behind."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from islands.llm.answers import plain_lines
from islands.llm.refusals import Refusal, RefusalKind

MOST_STARTS = 64  # places at which a value may begin
_TRAILING_COMMA = re.compile(r",(\s*[\]}])")
_DEEP = re.compile(r"[\[{\s\":]*")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def read_json(answer: str, kind: type[list[Any]] | type[dict[str, Any]], finish_reason: str = "") -> Any | Refusal:
    """The longest value of a kind in an answer: a list or an object. What is inside of others does not count."""
    text = "\n".join(plain_lines(answer))
    mended = _TRAILING_COMMA.sub(r"\1", text)
    found = [*_values(text, kind), *(_values(mended, kind) if mended != text else ())]
    if found:
        return max(found, key=lambda one: one[0])[1]
    what = "list" if kind is list else "object"
    if not text.strip():
        return Refusal(RefusalKind.EMPTY, f"The answer is empty. Answer with one JSON {what}.")
    if finish_reason.lower() in ("length", "max_tokens", "max_output_tokens"):
        return Refusal(RefusalKind.CUT_OFF, f"The answer was cut off. Answer with one JSON {what}, shorter.")
    return Refusal(RefusalKind.MALFORMED_JSON, f"The answer holds no JSON {what}. Answer with one and nothing else.")


def _values(text: str, kind: type) -> Iterator[tuple[int, Any]]:
    """Values with their lengths."""
    decoder, at, n_tried = json.JSONDecoder(), 0, 0
    starts = re.compile(r"[\[{]")
    while n_tried < MOST_STARTS and (start := starts.search(text, at)):
        n_tried += 1
        try:
            value, end = decoder.raw_decode(text, start.start())
        except ValueError:
            at = start.end()
            continue
        except RecursionError:
            at = _DEEP.match(text, start.start()).end()  # type: ignore[union-attr]  # it begins with a bracket
            continue
        for one in _as(kind, value):
            yield end - start.start(), one
        at = end


def _as(kind: type, value: Any) -> list[Any]:
    """The values of a kind that one stands for: a list may stand alone in an object, or an object for a list of one."""
    if isinstance(value, kind):
        return [value]
    if kind is list and isinstance(value, dict):
        return [one for one in value.values() if isinstance(one, list)] or [[value]]
    return []


def text_of(value: Any, most: int = 600) -> str:
    """A value as words on one line, without what cannot be printed or stored, such as half a surrogate pair; empty for
    what is no text and no number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    words = "".join(letter if letter.isprintable() else " " for letter in str(value)).split()
    return " ".join(words)[:most]


def texts_of(value: Any) -> tuple[str, ...]:
    """A list of texts; one text is a list of one, and what is no text is left out."""
    values = value if isinstance(value, list) else [value]
    return tuple(text for one in values if (text := text_of(one)))


def number_of(value: Any) -> float | None:
    """A number, or the first one of a text such as "12%" or "5-10 %"; None where there is none that is finite."""
    if isinstance(value, str):
        found = _NUMBER.search(value)
        value = float(found[0]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None

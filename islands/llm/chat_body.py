"""The body of a chat endpoint's answer, from a call or from a batch file, read without trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST_TOKENS = 2**40  # what is more was not counted


class Answer(NamedTuple):
    """What a body says. Tokens are None where it does not say how many."""

    text: str
    finish_reason: str
    n_tokens_in: int | None
    n_tokens_out: int | None
    n_tokens_cached: int = 0


def read_answer(body: Any) -> Answer | str:
    """The answer in a body, or what is wrong with it. An empty text is an answer here."""
    if not isinstance(body, Mapping):
        return f"expected a JSON object, got {type(body).__name__}"
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return "the answer has no choices"
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        return "the answer has no message"
    text = _text_of(message.get("content"))
    if text is None:
        return f"expected text, got {type(message.get('content')).__name__}"
    usage = body.get("usage")
    n_in, n_out, n_cached = _tokens(usage if isinstance(usage, Mapping) else {})
    return Answer(text, str(choices[0].get("finish_reason") or "stop"), n_in, n_out, n_cached)


def _text_of(content: Any) -> str | None:
    """A text, or the joined texts of a list of parts; None for anything else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        return "".join(str(part.get("text") or "") for part in content)
    return None


def _tokens(usage: Mapping[str, Any]) -> tuple[int | None, int | None, int]:
    """Tokens in, out, and from the cache. litellm says 0 where a server said nothing."""
    n_in, n_out = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    n_cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    if not n_in:
        return None, n_out or None, 0
    return n_in, n_out, n_cached or 0


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS
    return value if is_count else None

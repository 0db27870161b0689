"""Why a call failed: what an exception of a provider or of litellm means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from islands.llm.exchange import FailureKind

_REASON_LENGTH = 300
_WITHOUT_KEY = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"}
_UNREADABLE = {
    "JSONDecodeError",
    "APIResponseValidationError",
    "ValidationError",
    "KeyError",
    "AttributeError",
    "TypeError",
}


class Refusal(NamedTuple):
    """Why one call failed. `retry_after_s` is what the server asked for; `is_gone`: the model will not come back."""

    kind: FailureKind
    reason: str
    is_final: bool = False
    is_gone: bool = False
    retry_after_s: float | None = None


def refusal_of(error: Exception, scrub: Callable[[str], str]) -> Refusal:
    """What an exception means. Its text becomes one line, which `scrub` takes keys out of."""
    reason = _one_line(scrub(str(error) or type(error).__name__))
    kind, is_final, is_gone = _classified(error, reason)
    return Refusal(kind, reason, is_final, is_gone, retry_after_s=_retry_after_s(error))


def _classified(error: Exception, reason: str) -> tuple[FailureKind, bool, bool]:
    """The kind of a failure, whether it is final for this request, and whether the model is gone for good.

    litellm's classes changed between versions, and it calls broken connections and broken JSON server errors, so status
    codes and the causes behind an error count for more than its class.
    """
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    causes = {name for cause in _chain(error) for name in _names_of(cause)}
    if status in (401, 403) or causes & _WITHOUT_KEY:
        return FailureKind.AUTHENTICATION, True, True
    if causes & {"ImportError"}:  # a provider whose package is not installed
        return FailureKind.BAD_REQUEST, True, True
    if status == 402 or (status == 429 and _is_out_of_credit(error, reason)):
        return FailureKind.RATE_LIMIT, True, True
    if status == 429:
        return FailureKind.RATE_LIMIT, False, False
    if causes & _UNREADABLE or "invalid response" in reason.lower():
        return FailureKind.MALFORMED, False, False
    if status in (408, 504) or causes & {"Timeout", "APITimeoutError", "TimeoutException", "TimeoutError"}:
        return FailureKind.TIMEOUT, False, False
    if causes & {"TransportError", "ClientError", "ConnectionError", "APIConnectionError", "EndpointConnectionError"}:
        return FailureKind.CONNECTION, False, False
    if status is not None and 400 <= status < 500:
        return FailureKind.BAD_REQUEST, True, status == 404
    if status is not None and status >= 500:
        return FailureKind.SERVER, False, False
    return FailureKind.INTERNAL, False, False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _names_of(error: BaseException) -> Iterator[str]:
    """The classes of an error. litellm files half of its own under openai's connection error: those say nothing."""
    is_litellm = type(error).__module__.startswith("litellm")
    for kind in type(error).__mro__:
        if not (is_litellm and kind.__module__.startswith("openai")):
            yield kind.__name__


def _is_out_of_credit(error: Exception, reason: str) -> bool:
    codes = {getattr(cause, "code", None) for cause in _chain(error)}
    return "insufficient_quota" in codes or "insufficient_quota" in reason


def _retry_after_s(error: Exception) -> float | None:
    """Seconds of a Retry-After header, where a server sent one in seconds or as a date."""
    for cause in _chain(error):
        for headers in (getattr(cause, "litellm_response_headers", None), _headers_of(cause)):
            seconds = _seconds(headers.get("retry-after")) if headers else None
            if seconds is not None:
                return seconds
    return None


def _headers_of(error: BaseException) -> Any:
    return getattr(getattr(error, "response", None), "headers", None)


def _seconds(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _one_line(text: str) -> str:
    line = " ".join(text.split("Traceback (most recent call last)")[0].split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 3] + "..."

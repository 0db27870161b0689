"""What is asked of a language model and what comes of it: a `Request`, then a `Completion` or a `Failure`.

A failure is a value with a typed reason, never an exception, because a model that does not answer is nothing unusual.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property

from pydantic import Field, computed_field

from db.frozen import Record
from db.hashing import content_hash
from islands.llm.models import Role

CALL_LIMIT_S = 900.0
_BYTES_PER_TOKEN_AT_LEAST = 2
_TOKENS_PER_MESSAGE = 16


class Message(Record):
    """One turn of a conversation."""

    role: str  # system, user, assistant
    content: str


class Request(Record):
    """What one operator of one island asks.

    `limit_s` counts from the call: waiting, every try and every pause between tries. The prompt's hash is that of the
    messages unless one is given.
    """

    messages: tuple[Message, ...] = Field(min_length=1)
    role: Role = Role.ANY
    model: str = ""  # the id of a model; empty: any model of the role
    preferred: str = ""  # the id of the model of the role that is asked first, while it is in order; empty: by weight
    operator: str = ""
    island: int = Field(default=0, ge=0)
    given_hash: str = ""
    limit_s: float = Field(default=CALL_LIMIT_S, gt=0)
    max_output_tokens: int | None = Field(default=None, ge=1)  # less than the model's own limit

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def prompt_hash(self) -> str:
        """Equal for equal prompts."""
        return self.given_hash or prompt_hash_of(self.messages)

    @property
    def asked(self) -> str:
        """Whom it asks: a model's id, or a role."""
        return self.model or str(self.role)


class Completion(Record):
    """An answer. `finish_reason` is "length" where the model was cut off by its limit of tokens.

    Tokens are those of this answer; dollars, seconds and tries are those of the whole request, failed tries included.
    """

    text: str
    model: str
    finish_reason: str
    n_tokens_in: int = Field(ge=0)
    n_tokens_out: int = Field(ge=0)
    cost_usd: float | None  # None: the model is unpriced
    seconds: float = Field(ge=0)
    n_tries: int = Field(default=1, ge=1)
    has_estimated_tokens: bool = False  # the server did not say how many

    @property
    def is_cut_off(self) -> bool:
        return self.finish_reason == "length"


class FailureKind(StrEnum):
    """Why there is no answer."""

    RATE_LIMIT = "rate_limit"
    SERVER = "server"  # 5xx
    TIMEOUT = "timeout"  # of one call or of the whole request
    CONNECTION = "connection"  # refused, reset, broken
    EMPTY = "empty"
    MALFORMED = "malformed"  # an answer, but not of a chat endpoint
    BAD_REQUEST = "bad_request"  # too long, refused, or a model that is not there
    AUTHENTICATION = "authentication"
    BUDGET = "budget"
    NO_MODEL = "no_model"  # every model of the role is out of order
    NOT_RECORDED = "not_recorded"  # a replay lacks the answer
    MISSING = "missing"  # a batch came back without it
    INTERNAL = "internal"  # a fault that nobody foresaw, of evolve or of litellm


PASSING = frozenset(
    {FailureKind.RATE_LIMIT, FailureKind.SERVER, FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.NO_MODEL}
)
"""Failures that say nothing about what was asked, and pass by themselves."""


class Failure(Record):
    """No answer, and why. `is_final` says that asking the same again would fail the same way."""

    kind: FailureKind
    reason: str
    is_final: bool
    model: str = ""  # who failed last
    cost_usd: float | None = 0.0  # None: an unpriced model was called
    seconds: float = Field(default=0.0, ge=0)
    n_tries: int = Field(default=0, ge=0)

    @property
    def may_pass(self) -> bool:
        """Whether the same question may be answered a while later."""
        return not self.is_final and self.kind in PASSING


Outcome = Completion | Failure


def prompt_hash_of(messages: Sequence[Message]) -> str:
    """A hash over roles and contents."""
    return content_hash(*(part for message in messages for part in (message.role, message.content)))


def most_tokens(messages: Sequence[Message]) -> int:
    """More tokens than a prompt can have: what a budget reckons with before a call."""
    n_bytes = sum(len(message.content.encode(errors="replace")) for message in messages)
    return n_bytes // _BYTES_PER_TOKEN_AT_LEAST + _TOKENS_PER_MESSAGE * len(messages)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is, where nobody counted: 3.5 bytes each, which English and code come near to."""
    return -(-2 * len(text.encode(errors="replace")) // 7)

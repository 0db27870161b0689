"""Which language models a run may ask, and what they cost: `provider/name[:weight][,setting=value...]`.

    openai/gpt-4o                               one model
    anthropic/claude-sonnet-4-5:0.8             with a weight among the models of its role
    bedrock/anthropic.claude-v2:1@3             a weight after @, where the name itself ends in a number
    ollama/qwen2.5-coder:32b,unpriced           a local server that costs nothing
    hosted_vllm/qwen3,api_base=http://gpu7:8000/v1,role=executor,unpriced

A number at the end is a weight if it is one: above 0, below 1000, and without a leading zero. So the `:0` of Bedrock
and the `@20240620` and `@001` of Vertex stay in the name, and so does a whole number after `-v1:`, which Bedrock counts
revisions with. Everything else after a colon (`32b`, `latest`) is a part of the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from db.errors import ConfigError
from db.frozen import Record

_WEIGHT = r"[1-9]\d{0,2}|(?:0|[1-9]\d{0,2})\.\d+"
_WEIGHTED = re.compile(rf"(?P<id>.+?[^:@/])(?P<mark>[:@])(?P<weight>{_WEIGHT})", re.DOTALL)
_REVISION = re.compile(r"-v\d+$")
_ID = re.compile(r"(?P<provider>[a-z0-9][a-z0-9_.-]*)/(?P<name>[^\s,@:/](?:[^\s,]*[^\s,@:/])?)")
_EXAMPLE = "write provider/name, with a weight if wanted: openai/gpt-4o, ollama/qwen2.5-coder:32b@0.5"


class Role(StrEnum):
    """What a model is asked for. One for `any` serves every role that has no model of its own."""

    PLANNER = "planner"
    EXECUTOR = "executor"
    REFLECTOR = "reflector"
    ANY = "any"


class ModelSpec(Record):
    """One model: who serves it, its share among the models of its role, its price and its limits.

    Prices are dollars for a million tokens. Where none is given the table of litellm answers; a model that is in no
    table must be called unpriced, because a budget in dollars would not hold for it.
    """

    provider: str
    name: str
    weight: float = Field(default=1.0, gt=0, lt=1000)
    role: Role = Role.ANY
    api_base: str | None = None
    key_name: str | None = None  # the environment variable that holds its key, where it is not the provider's own
    usd_per_mtok_in: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    usd_per_mtok_out: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    is_unpriced: bool = False
    max_output_tokens: int = Field(default=16_384, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)

    @property
    def model_id(self) -> str:
        """As litellm, records and people call it."""
        return f"{self.provider}/{self.name}"

    @property
    def address(self) -> str:
        """What fails together: the same model at the same server."""
        return f"{self.model_id} {self.api_base or ''}".rstrip()

    @field_validator("api_base")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://none")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected an address like http://127.0.0.1:8000/v1, got {value!r}")
        if parts.username or parts.password or parts.query:
            raise ValueError("an address must not hold a key; name an environment variable with key_name")
        return value

    @model_validator(mode="after")
    def _price_is_whole(self) -> Self:
        if (self.usd_per_mtok_in is None) != (self.usd_per_mtok_out is None):
            raise ValueError("a price has two parts: usd_per_mtok_in and usd_per_mtok_out")
        if self.is_unpriced and self.usd_per_mtok_in is not None:
            raise ValueError("a model is unpriced or has a price, not both")
        return self


class Price(Record):
    """Dollars for a million tokens. Tokens that a provider took from its cache have a price of their own."""

    usd_per_mtok_in: float
    usd_per_mtok_out: float
    usd_per_mtok_cached: float | None = None

    def of(self, n_tokens_in: int, n_tokens_out: int, n_tokens_cached: int = 0) -> float:
        """Dollars for one call. `n_tokens_cached` are among `n_tokens_in`."""
        cached_price = self.usd_per_mtok_in if self.usd_per_mtok_cached is None else self.usd_per_mtok_cached
        n_cached = min(n_tokens_cached, n_tokens_in)
        fresh = (n_tokens_in - n_cached) * self.usd_per_mtok_in
        return (fresh + n_cached * cached_price + n_tokens_out * self.usd_per_mtok_out) / 1e6


def read_model(given: str | Mapping[str, Any]) -> ModelSpec:
    """A model from `provider/name[:weight][,setting=value...]`, or from a mapping whose key `model` holds that.

    Raises:
        ConfigError: it cannot be read; the hint says how it is written.
    """
    if isinstance(given, str):
        given = {"model": given}
    settings = {str(key): value for key, value in given.items()}
    text = settings.pop("model", None)
    if not isinstance(text, str):
        raise ConfigError(f"a model needs the key 'model', got {sorted(settings)}", _EXAMPLE)
    model, *parts = text.strip().split(",")
    settings |= _names(model, text)
    for part in parts:
        settings |= _setting(part, text)
    return _checked(settings, text)


def read_models(given: Iterable[str | Mapping[str, Any]]) -> tuple[ModelSpec, ...]:
    """Several models.

    Raises:
        ConfigError: one cannot be read, or two are the same for the same role.
    """
    specs = tuple(read_model(one) for one in given)
    seen: set[tuple[str, Role]] = set()
    for spec in specs:
        if (spec.address, spec.role) in seen:
            raise ConfigError(f"{spec.model_id} is named twice for role {spec.role}", "give it one weight instead")
        seen.add((spec.address, spec.role))
    return specs


def of_role(specs: Iterable[ModelSpec], role: Role) -> tuple[ModelSpec, ...]:
    """The models for a role; those for any where it has none of its own."""
    specs = tuple(specs)
    own = tuple(spec for spec in specs if spec.role is role)
    return own or tuple(spec for spec in specs if spec.role is Role.ANY)


def _names(model: str, text: str) -> dict[str, Any]:
    model_id, weight = _split_weight(model)
    parts = _ID.fullmatch(model_id)
    if parts is None:
        raise ConfigError(f"cannot read the model {text!r}", _EXAMPLE)
    return {**parts.groupdict(), **({} if weight is None else {"weight": weight})}


def _split_weight(model: str) -> tuple[str, float | None]:
    found = _WEIGHTED.fullmatch(model)
    if found is None:
        return model, None
    model_id, weight = found["id"], found["weight"]
    is_revision = found["mark"] == ":" and "." not in weight and _REVISION.search(model_id)
    if is_revision or not math.isfinite(float(weight)) or float(weight) == 0 or "::" in model_id:
        return model, None
    return model_id, float(weight)


def _setting(part: str, text: str) -> dict[str, Any]:
    if part.strip() == "unpriced":
        return {"is_unpriced": True}
    name, equals, value = part.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ConfigError(f"cannot read {part!r} of the model {text!r}", "write settings like api_base=http://host/v1")
    return {name.strip(): value.strip()}


def _checked(settings: Mapping[str, Any], text: str) -> ModelSpec:
    try:
        return ModelSpec(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        known = [name for name in ModelSpec.model_fields if name not in ("provider", "name")]
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise ConfigError(f"model {text!r}: {what}", f"settings of a model: {', '.join(known)}") from None

"""Clients of scripted servers: quick to give up, and with a key that must appear nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from islands.llm.client import LlmClient, LlmSettings
from islands.llm.exchange import Message, Outcome, Request
from islands.llm.keys import Keys
from islands.llm.models import ModelSpec, read_model

T = TypeVar("T")

MARKER = "sk-marker-0123456789abcdefghijklmnopqrstuvwxyz"
QUICK = LlmSettings(n_tries=3, call_limit_s=5.0, backoff_s=0.01, breaker_open_s=0.2)


def spec(api_base: str, name: str = "scripted", **settings: Any) -> ModelSpec:
    """A model at an OpenAI-compatible server; ten and thirty dollars for a million tokens unless unpriced."""
    price = {} if settings.get("is_unpriced") else {"usd_per_mtok_in": 10.0, "usd_per_mtok_out": 30.0}
    return read_model({"model": f"openai/{name}", "api_base": api_base, **price, **settings})


def client_of(*specs: ModelSpec, settings: LlmSettings = QUICK, **options: Any) -> LlmClient:
    return LlmClient(specs, Keys({"OPENAI_API_KEY": MARKER}), settings=settings, **options)


def request(text: str = "make it faster", **asked: Any) -> Request:
    return Request(messages=(Message(role="user", content=text),), **{"operator": "mutate", "limit_s": 20.0, **asked})


def complete(client: LlmClient, *requests: Request) -> list[Outcome]:
    """What requests that are made at once come to, in their order."""
    return run(_all(client, requests))


async def _all(client: LlmClient, requests: Iterable[Request]) -> list[Outcome]:
    await client.prepare()
    return list(await asyncio.gather(*(client.complete(one) for one in requests)))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)

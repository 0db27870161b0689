"""The one door to litellm: one call to one model, and what came of it as a value.

litellm is imported on the first call, in a thread, because that takes seconds. It must not look for prices on the
network while it is imported: many machines that run searches have none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from db.errors import ConfigError
from islands.llm.chat_body import Answer, read_answer
from islands.llm.exchange import FailureKind, Request
from islands.llm.faults import Refusal, refusal_of
from islands.llm.keys import Keys, lent
from islands.llm.models import ModelSpec, Price

T = TypeVar("T")

_LOCAL_PRICES = "LITELLM_LOCAL_MODEL_COST_MAP"
# of litellm, read when it is imported: 500 to one server, which would make more calls wait for each other unseen
_CONNECTION_LIMITS = ("AIOHTTP_CONNECTOR_LIMIT", "AIOHTTP_CONNECTOR_LIMIT_PER_HOST")
_OWN_SERVERS = {"hosted_vllm": "HOSTED_VLLM_API_BASE", "openai_like": "OPENAI_LIKE_API_BASE"}
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "aiohttp")


@cache
def load_litellm() -> ModuleType:
    """litellm, quiet and without a look at the network. Takes seconds the first time.

    Raises:
        ConfigError: it is not installed, or its installation is broken.
    """
    os.environ[_LOCAL_PRICES] = "True"
    for name in _CONNECTION_LIMITS:
        os.environ.setdefault(name, "10000")
    try:
        import litellm
    except ImportError as error:
        raise ConfigError(f"cannot import litellm: {error}", "pip install 'litellm>=1.80'") from error
    litellm.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:  # what goes wrong is told as a value; its logs would run into the live view
        for name in _LOGGERS[:3]:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    litellm.drop_params = True  # a model that takes no temperature is asked without one
    litellm.telemetry = False
    # of litellm 1.80, about its own records
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
    module: ModuleType = litellm
    return module


def price_of(spec: ModelSpec) -> Price | None:
    """The price of a model: as given, or from litellm's table; None for one that was called unpriced.

    Raises:
        ConfigError: it is in no table and was not called unpriced, or litellm does not know its provider.
    """
    litellm = load_litellm()
    if spec.provider not in _providers(litellm):
        raise ConfigError(f"litellm knows no provider {spec.provider!r}", _provider_hint(spec.provider, litellm))
    if spec.is_unpriced:
        return None
    if spec.usd_per_mtok_in is not None and spec.usd_per_mtok_out is not None:
        return Price(usd_per_mtok_in=spec.usd_per_mtok_in, usd_per_mtok_out=spec.usd_per_mtok_out)
    entry = _entry_of(spec, litellm)
    if entry.get("input_cost_per_token") is None or entry.get("output_cost_per_token") is None:
        hint = f"give usd_per_mtok_in and usd_per_mtok_out, or say that it costs nothing: {spec.model_id},unpriced"
        raise ConfigError(f"no price is known for {spec.model_id}", hint)
    cached = entry.get("cache_read_input_token_cost")
    return Price(
        usd_per_mtok_in=entry["input_cost_per_token"] * 1e6,
        usd_per_mtok_out=entry["output_cost_per_token"] * 1e6,
        usd_per_mtok_cached=None if cached is None else cached * 1e6,
    )


def batch_price_of(spec: ModelSpec) -> Price | None:
    """As `price_of`, for requests that a provider takes in a file: many ask half. A price that was given is meant so.

    Raises:
        ConfigError: as `price_of`.
    """
    price = price_of(spec)
    entry = _entry_of(spec, load_litellm())
    batch_in, batch_out = entry.get("input_cost_per_token_batches"), entry.get("output_cost_per_token_batches")
    if price is None or spec.usd_per_mtok_in is not None or batch_in is None or batch_out is None:
        return price
    cached = entry.get("cache_read_input_token_cost_batches")
    return Price(
        usd_per_mtok_in=batch_in * 1e6,
        usd_per_mtok_out=batch_out * 1e6,
        usd_per_mtok_cached=None if cached is None else cached * 1e6,
    )


def most_output_tokens(spec: ModelSpec) -> int:
    """The limit of a model, which is not more than litellm's table says it can write."""
    known = _entry_of(spec, load_litellm()).get("max_output_tokens")
    return min(spec.max_output_tokens, known) if isinstance(known, int) and known > 0 else spec.max_output_tokens


def limits_in_body(spec: ModelSpec, n_tokens_out: int) -> dict[str, Any]:
    """The limit of tokens and the temperature as a model's chat endpoint names them, where it takes them.

    Some of OpenAI's models know `max_completion_tokens` alone, and no temperature.
    """
    wanted = {"max_tokens": n_tokens_out, **({} if spec.temperature is None else {"temperature": spec.temperature})}
    if spec.provider not in ("openai", "azure"):
        return wanted
    load_litellm()
    from litellm.utils import get_optional_params

    taken = get_optional_params(model=spec.name, custom_llm_provider=spec.provider, drop_params=True, **wanted)
    return {name: taken[name] for name in ("max_tokens", "max_completion_tokens", "temperature") if name in taken}


async def _call(litellm: ModuleType, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    response = await litellm.acompletion(**arguments)
    body: dict[str, Any] | None = None if response is None else response.model_dump(warnings=False)
    return body


@cache
def _litellm_loop() -> asyncio.AbstractEventLoop:
    """A loop of litellm's own, in a thread that lasts as long as the process.

    litellm keeps connections and a worker for each loop; the worker of 1.80 can keep a loop from ever ending. And
    some providers fetch credentials without `await`: here this stops nobody's deadline.
    """
    loop = asyncio.new_event_loop()
    # sessions that litellm never closes and workers that it drops; what calls come to is told to who asked
    loop.set_exception_handler(lambda _loop, _context: None)
    threading.Thread(target=loop.run_forever, name="litellm", daemon=True).start()
    return loop


async def _elsewhere(call: Coroutine[Any, Any, T]) -> T:
    """Runs a call on litellm's loop. Cancelling it here cancels it there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _litellm_loop()))


def _is_cancelled() -> bool:
    """Whether somebody cancelled the task itself, and not only what it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Provider:
    """Makes calls with keys that nobody else sees."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._litellm: ModuleType | None = None

    async def prepare(self) -> ModuleType:
        """Imports litellm, once, without stopping the loop."""
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(load_litellm)
            _scrub_logs(self._keys.scrub)
        return self._litellm

    def check(self, spec: ModelSpec) -> None:
        """Finds out before the first call that a model cannot be asked.

        Raises:
            ConfigError: its key is not set, or it is a server of one's own whose address nobody gave.
        """
        lacking = self._keys.lacking(spec)
        if lacking:
            raise ConfigError(f"no key for {spec.model_id}", f"set the environment variable {lacking}")
        base_name = _OWN_SERVERS.get(spec.provider)
        if base_name and spec.api_base is None and not os.environ.get(base_name):
            # litellm would ask api.openai.com
            raise ConfigError(
                f"no address for {spec.model_id}", f"say where it is: {spec.model_id},api_base=http://host:8000/v1"
            )

    async def ask(self, spec: ModelSpec, request: Request, n_tokens_out: int, limit_s: float) -> Answer | Refusal:
        """One call, no retry. Texts of errors come without keys."""
        litellm = await self.prepare()
        keys = self._keys.for_call(spec)
        arguments = {
            "model": spec.model_id,
            "messages": [message.model_dump() for message in request.messages],
            "max_tokens": n_tokens_out,
            "timeout": limit_s + 1.0,
            "num_retries": 0,
            "max_retries": 0,
            **({} if spec.temperature is None else {"temperature": spec.temperature}),
            **keys.arguments,
        }
        try:
            with lent(keys.environment):
                async with asyncio.timeout(limit_s):
                    return self._read(await _elsewhere(_call(litellm, arguments)))
        except TimeoutError:
            return Refusal(FailureKind.TIMEOUT, f"no answer within {limit_s:.3g} s")
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return Refusal(FailureKind.CONNECTION, "litellm gave the call up")
        except Exception as error:  # the boundary: whatever providers and litellm raise becomes a value here
            return refusal_of(error, self._keys.scrub)

    def _read(self, body: Mapping[str, Any] | None) -> Answer | Refusal:
        if body is None:  # of litellm, after two tries that a server answered with 422
            return Refusal(FailureKind.BAD_REQUEST, "the server understands no such request (422)", is_final=True)
        answer = read_answer(body)
        if isinstance(answer, str):
            return Refusal(FailureKind.MALFORMED, self._keys.scrub(answer))
        return answer._replace(text=self._keys.scrub_whole(answer.text))


def _providers(litellm: ModuleType) -> set[str]:
    return {str(getattr(provider, "value", provider)) for provider in litellm.provider_list}


def _provider_hint(name: str, litellm: ModuleType) -> str:
    import difflib

    near = difflib.get_close_matches(name, _providers(litellm), n=1)
    if near:
        return f"did you mean {near[0]}?"
    return "a server that speaks OpenAI's language is openai/NAME,api_base=http://host:port/v1"


def _entry_of(spec: ModelSpec, litellm: ModuleType) -> Mapping[str, Any]:
    """What litellm's table says of a model: under its whole id, or its name if that is of the same provider."""
    table: Mapping[str, Mapping[str, Any]] = litellm.model_cost
    if spec.provider == "openai" and not _is_openai(spec.api_base):
        return {}  # another server that speaks the same language, whatever its model is called
    if spec.model_id in table:
        return table[spec.model_id]
    entry = table.get(spec.name, {})
    return entry if str(entry.get("litellm_provider", "")).startswith(spec.provider) else {}


def _is_openai(api_base: str | None) -> bool:
    host = urlsplit(api_base).hostname or "" if api_base else "api.openai.com"
    return host == "openai.com" or host.endswith(".openai.com")


class _Scrubber(logging.Filter):
    """Takes keys out of what litellm and its clients log."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._scrub(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = self._scrub(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        return True


def _scrub_logs(scrub: Callable[[str], str]) -> None:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_Scrubber(scrub))

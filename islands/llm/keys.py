"""Keys of providers: taken out of the environment once, held here, and shown to nobody but the provider.

    keys = take_keys(os.environ)        # from here on no child process, log or candidate can inherit them

What a provider takes with a call is given with the call. What litellm reads from the environment alone is set there
while a call of that provider lasts.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, Self
from urllib.parse import quote

from islands.llm.models import ModelSpec

# the names that litellm's providers read, and whatever else is called a key; Ray needs its own token itself
_KEY_NAME = re.compile(
    r"(?!RAY_)(?:.*(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS|JWT)|(?:AWS|AZURE|VERTEX|VERTEXAI)_.*)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r".*_(?:REGION|REGION_NAME|VERSION|BASE|ENDPOINT|URL|LOCATION|PROJECT|PROFILE|PROFILE_NAME)", re.I
)
_SHORTEST_SECRET = 4
_FRAGMENT = 8  # characters of a key that no text may show: providers echo keys cut off
_SCRUBBED = "[key]"

_GOOGLE_PROJECT = ("VERTEXAI_PROJECT", "VERTEX_PROJECT", "GOOGLE_CLOUD_PROJECT")
_AWS = {
    "aws_access_key_id": ("AWS_ACCESS_KEY_ID",),
    "aws_secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "aws_session_token": ("AWS_SESSION_TOKEN",),
    "aws_region_name": ("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION"),
}
_VERTEX = {
    "vertex_credentials": ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_CREDENTIALS", "VERTEX_CREDENTIALS"),
    "vertex_project": _GOOGLE_PROJECT,
    "vertex_location": ("VERTEXAI_LOCATION", "VERTEX_LOCATION"),
}
_AZURE = {
    "api_key": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
    "azure_ad_token": ("AZURE_AD_TOKEN",),
    "tenant_id": ("AZURE_TENANT_ID",),
    "client_id": ("AZURE_CLIENT_ID",),
    "client_secret": ("AZURE_CLIENT_SECRET",),
    "api_base": ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
    "api_version": ("AZURE_API_VERSION",),
}
# argument of litellm.acompletion: the variables that hold its value, the first one that is set counts
_ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "bedrock": _AWS,
    "sagemaker": _AWS,
    "sagemaker_chat": _AWS,
    "vertex_ai": _VERTEX,
    "azure": _AZURE,
    "azure_ai": {"api_key": ("AZURE_AI_API_KEY",), "api_base": ("AZURE_AI_API_BASE",)},
    "gemini": {"api_key": ("GEMINI_API_KEY", "GOOGLE_API_KEY")},
    "huggingface": {"api_key": ("HF_TOKEN", "HUGGINGFACE_API_KEY")},
    "together_ai": {"api_key": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_AI_TOKEN")},
    "openrouter": {"api_key": ("OPENROUTER_API_KEY", "OR_API_KEY")},
    "cohere": {"api_key": ("COHERE_API_KEY", "CO_API_KEY")},
    "cohere_chat": {"api_key": ("COHERE_API_KEY", "CO_API_KEY")},
    "fireworks_ai": {"api_key": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY")},
    "perplexity": {"api_key": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY")},
    "replicate": {"api_key": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN")},
    "ollama_chat": {"api_key": ("OLLAMA_API_KEY",)},
    "text-completion-openai": {"api_key": ("OPENAI_API_KEY",)},
}


# providers that answer nobody without a key; others take what the machine has, or are servers of one's own
_NEEDS_KEY = frozenset(
    [
        "openai",
        "anthropic",
        "gemini",
        "azure",
        "azure_ai",
        "openrouter",
        "groq",
        "mistral",
        "codestral",
        "deepseek",
        "xai",
        "cohere",
        "cohere_chat",
        "together_ai",
        "fireworks_ai",
        "perplexity",
        "cerebras",
        "sambanova",
        "deepinfra",
        "nebius",
        "moonshot",
        "nvidia_nim",
        "replicate",
        "huggingface",
    ]
)


class CallKeys(NamedTuple):
    """What a call gets: arguments for litellm, and variables that must be set while it lasts."""

    arguments: dict[str, Any]
    environment: dict[str, str]

    def __repr__(self) -> str:
        return f"CallKeys({sorted(self.arguments)}, {sorted(self.environment)})"


class Keys:
    """Keys of providers. Shows their names alone; refuses to be pickled, so that they reach no file or other process.

    A process that is to make the calls is handed them knowingly, by `hand_over`.
    """

    __slots__ = ("_fragments", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._fragments = _fragments(self._secrets())

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that were found."""
        return tuple(sorted(self._values))

    def hand_over(self) -> dict[str, str]:
        """Names and values, for the one process that makes the calls; never for a file, a log or an environment."""
        return dict(self._values)

    def for_call(self, spec: ModelSpec) -> CallKeys:
        """What a call to a model needs. A server of one's own without a key gets a word that says so."""
        arguments = self._arguments(spec)
        if "api_key" not in arguments and spec.api_base is not None:
            arguments["api_key"] = "no-key"
        if spec.api_base is not None:
            arguments["api_base"] = spec.api_base
        return CallKeys(arguments, self._left_over(spec.provider, arguments))

    def lacking(self, spec: ModelSpec) -> str:
        """The variable that a model's provider wants and that is not set; empty where nothing is known to lack."""
        if spec.key_name is not None and spec.key_name not in self._values:
            return spec.key_name
        secrets = self._arguments(spec).keys() - {"api_base", "api_version"}
        if secrets or spec.api_base is not None or spec.provider not in _NEEDS_KEY:
            return ""
        return _wanted(spec)["api_key"][0]

    def scrub(self, text: str) -> str:
        """The text without any key: whole, encoded for an address, or a part of at least eight characters."""
        for value in self._secrets():
            for spelling in {value, quote(value), quote(value, safe=""), json.dumps(value)[1:-1]}:
                text = text.replace(spelling, _SCRUBBED)
        return _without_fragments(text, self._fragments)

    def scrub_whole(self, text: str) -> str:
        """The text without whole keys. For answers, where a part of a key may be there by chance."""
        for value in self._secrets():
            text = text.replace(value, _SCRUBBED)
        return text

    def __repr__(self) -> str:
        return f"Keys({', '.join(self.names)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("keys do not travel: make the client where the calls are made, or use Keys.hand_over")

    def _secrets(self) -> list[str]:
        """The values that must not be shown, the longest first."""
        values = {v for name, v in self._values.items() if not _HARMLESS.fullmatch(name) and len(v) >= _SHORTEST_SECRET}
        return sorted(values, key=len, reverse=True)

    def _arguments(self, spec: ModelSpec) -> dict[str, Any]:
        found = {argument: self._first(names) for argument, names in _wanted(spec).items()}
        return {argument: value for argument, value in found.items() if value is not None}

    def _first(self, names: Sequence[str]) -> str | None:
        return next((self._values[name] for name in names if self._values.get(name)), None)

    def _left_over(self, provider: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """What was taken under a provider's prefix and cannot be given with the call."""
        prefix = {"bedrock": "AWS", "sagemaker": "AWS", "sagemaker_chat": "AWS", "vertex_ai": "VERTEX"}.get(provider)
        prefix = prefix or re.sub(r"[^A-Z0-9]", "_", provider.upper())
        given = set(arguments.values())
        if "api_key" in arguments:
            return {}
        return {n: v for n, v in self._values.items() if n.startswith(f"{prefix}_") and v not in given}


def take_keys(environ: MutableMapping[str, str], extra_names: Sequence[str] = ()) -> Keys:
    """Removes every variable that holds a key, and those named besides, and returns them as `Keys`.

    Of the process's own environment, what the system shows of it in /proc is overwritten too.
    """
    names = [name for name in environ if _KEY_NAME.fullmatch(name) or name in extra_names]
    values = {name: environ[name] for name in names}
    for name in names:
        if environ is os.environ:
            _overwrite(name)
        del environ[name]
    return Keys(values)


def _overwrite(name: str) -> None:
    """Puts stars over the value of a variable where the process was given it: /proc/PID/environ shows that place."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(os.fsencode(name))
    if place:
        ctypes.memset(place, ord("*"), len(ctypes.string_at(place)))


def _wanted(spec: ModelSpec) -> dict[str, tuple[str, ...]]:
    """Arguments of a call to a model, with the variables that may hold them."""
    own = re.sub(r"[^A-Z0-9]", "_", spec.provider.upper())
    usual = {"api_key": (f"{own}_API_KEY", f"{own}_APIKEY", f"{own}_TOKEN", f"{own}_API_TOKEN")}
    wanted = dict(_ARGUMENTS.get(spec.provider, usual))
    if spec.key_name is not None:
        wanted["api_key"] = (spec.key_name,)
    return wanted


_LENT: Counter[str] = Counter()
_LENDING = threading.Lock()


@contextmanager
def lent(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of the environment as long as one of the calls that need them lasts."""
    with _LENDING:
        for name, value in variables.items():
            os.environ[name] = value
            _LENT[name] += 1
    try:
        yield
    finally:
        with _LENDING:
            for name in variables:
                _LENT[name] -= 1
                if not _LENT[name]:
                    os.environ.pop(name, None)


def _fragments(secrets: Sequence[str]) -> frozenset[str]:
    """Every stretch of `_FRAGMENT` characters of every key."""
    return frozenset(s[k : k + _FRAGMENT] for s in secrets for k in range(len(s) - _FRAGMENT + 1))


def _without_fragments(text: str, fragments: frozenset[str]) -> str:
    if not fragments:
        return text
    shown = [text[k : k + _FRAGMENT] in fragments for k in range(len(text))]
    kept, k = [], 0
    while k < len(text):
        if not shown[k]:
            kept.append(text[k])
            k += 1
            continue
        end = k + _FRAGMENT
        while k < end:
            end = max(end, k + _FRAGMENT) if k < len(text) and shown[k] else end
            k += 1
        kept.append(_SCRUBBED)
    return "".join(kept)

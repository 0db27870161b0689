"""Keys leave the environment and are shown to providers alone."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from support.llm_clients import MARKER, client_of, complete, request, spec
from support.llm_server import Asked, LlmServer, Reply, answer, echoing_key

from db.errors import ConfigError
from db.llm_calls import LlmCall
from islands.llm.client import LlmClient
from islands.llm.exchange import Completion, Failure
from islands.llm.keys import Keys, lent, take_keys
from islands.llm.models import read_model
from islands.llm.recording import Recorder

SECRETS = {
    "OPENAI_API_KEY": MARKER,
    "ANTHROPIC_API_KEY": "ant-0123456789abcdef",
    "GEMINI_API_KEY": "AIza-0123456789abcdef",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
    "AWS_ACCESS_KEY_ID": "AKIA0123456789ABCDEF",
    "AWS_SECRET_ACCESS_KEY": "wJalr/XUtn+FEMI/K7MDENG",
    "AWS_SESSION_TOKEN": "session-0123456789",
    "AWS_REGION": "us-east-1",
    "AZURE_API_KEY": "azure-0123456789",
    "AZURE_API_BASE": "https://me.openai.azure.com",
    "AZURE_API_VERSION": "2024-10-21",
    "VERTEXAI_PROJECT": "my-project",
    "VERTEXAI_LOCATION": "us-central1",
    "HF_TOKEN": "hf_0123456789abcdef",
    "MY_OWN_SECRET": "own-0123456789",
    "WATSONX_APIKEY": "watson-0123456789",
    "mistral_api_key": "mistral-0123456789",
}
HARMLESS = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "CUDA_VISIBLE_DEVICES": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "us",
    "LANG": "C",
    "RAY_AUTH_TOKEN": "ray-needs-it-itself",
    "OPENAI_API_BASE": "http://127.0.0.1/v1",
}


def test_keys_leave_the_environment_and_nothing_else_does() -> None:
    environ = {**SECRETS, **HARMLESS, "LLM_LOGIN": "login-0123456789"}
    keys = take_keys(environ, ["LLM_LOGIN", "NOT_SET"])
    assert environ == HARMLESS
    assert keys.hand_over() == {**SECRETS, "LLM_LOGIN": "login-0123456789"}
    assert keys.names == tuple(sorted([*SECRETS, "LLM_LOGIN"]))


def test_nothing_shows_a_value() -> None:
    keys = Keys(SECRETS)
    given = keys.for_call(read_model("openai/gpt-4o"))
    shown = [repr(keys), str(keys), f"{keys}", f"{[keys]}", repr(given), str(given), str(dir(keys))]
    assert not [text for text in shown for value in SECRETS.values() if value in text]
    assert "OPENAI_API_KEY" in repr(keys) and not hasattr(keys, "__dict__")
    with pytest.raises(TypeError, match="do not travel"):
        pickle.dumps(keys)
    with pytest.raises(TypeError):
        json.dumps(keys)
    assert copy.deepcopy(keys) is copy.copy(keys) is keys


def arguments(model: str, values: dict[str, str] = SECRETS) -> dict[str, object]:
    return Keys(values).for_call(read_model(model)).arguments


def test_each_provider_is_given_its_own_key_and_no_other() -> None:
    assert arguments("openai/gpt-4o") == {"api_key": MARKER}
    assert arguments("anthropic/claude-sonnet-4-5") == {"api_key": "ant-0123456789abcdef"}
    assert arguments("gemini/gemini-2.5-pro") == {"api_key": "AIza-0123456789abcdef"}
    assert arguments("huggingface/x") == {"api_key": "hf_0123456789abcdef"}
    assert arguments("watsonx/x") == {"api_key": "watson-0123456789"}
    assert arguments("openai/x,key_name=MY_OWN_SECRET") == {"api_key": "own-0123456789"}
    assert arguments("bedrock/anthropic.claude-v2:1") == {
        "aws_access_key_id": "AKIA0123456789ABCDEF",
        "aws_secret_access_key": "wJalr/XUtn+FEMI/K7MDENG",
        "aws_session_token": "session-0123456789",
        "aws_region_name": "us-east-1",
    }
    assert arguments("vertex_ai/gemini-2.5-pro") == {
        "vertex_credentials": "/home/me/key.json",
        "vertex_project": "my-project",
        "vertex_location": "us-central1",
    }
    assert arguments("azure/gpt") == {
        "api_key": "azure-0123456789",
        "api_base": "https://me.openai.azure.com",
        "api_version": "2024-10-21",
    }


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert arguments("openai/x,api_base=http://gpu7/v1", {}) == {"api_key": "no-key", "api_base": "http://gpu7/v1"}
    assert arguments("groq/x", {}) == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("azure/gpt-4o", "AZURE_API_KEY"),
        ("groq/x,unpriced", "GROQ_API_KEY"),
        ("openai/x,api_base=http://127.0.0.1:9/v1,unpriced,key_name=MY_KEY", "MY_KEY"),
        ("ollama/x,unpriced", ""),
        ("bedrock/anthropic.claude-v2:1", ""),
        ("openai/x,api_base=http://127.0.0.1:9/v1,unpriced", ""),
    ],
)
def test_a_key_that_is_not_set_is_named_before_the_first_call(text: str, name: str) -> None:
    assert Keys({"AZURE_API_BASE": "https://me.openai.azure.com"}).lacking(read_model(text)) == name
    if name:
        with pytest.raises(ConfigError) as caught:
            asyncio.run(LlmClient([read_model(text)], Keys({})).prepare())
        assert name in caught.value.hint
    assert not Keys({**SECRETS, "GROQ_API_KEY": "groq", "MY_KEY": "mine"}).lacking(read_model(text))


def test_a_server_of_ones_own_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="no address") as caught:
        asyncio.run(LlmClient([read_model("hosted_vllm/qwen3,unpriced")], Keys({})).prepare())
    assert "api_base" in caught.value.hint


def test_what_cannot_be_given_with_a_call_is_set_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
    given = Keys({"AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token", "AWS_REGION": "eu-west-1"}).for_call(
        read_model("bedrock/anthropic.claude-v2:1")
    )
    assert given.arguments == {"aws_region_name": "eu-west-1"}
    with lent(given.environment):
        with lent(given.environment):
            assert os.environ["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/run/token"
        assert os.environ["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/run/token"
    assert "AWS_WEB_IDENTITY_TOKEN_FILE" not in os.environ
    assert Keys(SECRETS).for_call(read_model("openai/gpt-4o")).environment == {}


@pytest.mark.parametrize("name", sorted(SECRETS.keys() - {"AWS_REGION", "AZURE_API_BASE", "AZURE_API_VERSION"}))
def test_texts_are_scrubbed_of_every_spelling(name: str) -> None:
    value = SECRETS[name]
    if name in ("VERTEXAI_PROJECT", "VERTEXAI_LOCATION"):
        return
    keys = Keys(SECRETS)
    for spelling in (value, quote(value, safe=""), value[:12], value[-12:], f"x{value}y{value}"):
        scrubbed = keys.scrub(f"401 for {spelling}: no")
        assert spelling not in scrubbed and "[key]" in scrubbed
        assert scrubbed.startswith("401 for ") and scrubbed.endswith(": no")


def test_what_is_no_key_stays() -> None:
    text = "in us-east-1 at https://me.openai.azure.com, version 2024-10-21: out of memory"
    assert Keys(SECRETS).scrub(text) == text
    assert Keys({"OPENAI_API_KEY": "x"}).scrub("a text with x") == "a text with x"
    assert Keys({}).scrub(text) == text


def test_a_key_that_a_provider_echoes_is_in_no_failure_call_log_or_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[LlmCall] = []
    recorder = Recorder(tmp_path / "run.jsonl")
    caplog.set_level(logging.DEBUG)
    with LlmServer(echoing_key()) as server:
        (outcome,) = complete(client_of(spec(server.api_base), journal=calls.append, recorder=recorder), request())
    assert isinstance(outcome, Failure) and "Incorrect API key provided: [key]" in outcome.reason
    shown = [outcome.model_dump_json(), *(c.model_dump_json() for c in calls), (tmp_path / "run.jsonl").read_text()]
    assert len(shown) == 3 and MARKER not in "".join(shown)
    assert MARKER not in caplog.text


def test_a_key_in_an_answer_does_not_get_further() -> None:
    def echo(asked: Asked) -> Reply:
        return answer(f"# {asked.headers['authorization']}")

    with LlmServer(echo) as server:
        (outcome,) = complete(client_of(spec(server.api_base)), request())
    assert isinstance(outcome, Completion) and outcome.text == "# Bearer [key]"


def test_no_child_process_inherits_a_key_or_reads_it_in_proc() -> None:
    environ = {**os.environ, "OPENAI_API_KEY": MARKER}
    code = (
        "import os, subprocess; from islands.llm.keys import take_keys; keys = take_keys(os.environ);"
        "print(subprocess.run(['env'], capture_output=True, text=True).stdout, keys);"
        "print(subprocess.run(['cat', f'/proc/{os.getpid()}/environ'], capture_output=True, text=True).stdout);"
        "assert keys.hand_over()['OPENAI_API_KEY'].startswith('sk-marker')"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Keys(" in done.stdout and MARKER not in done.stdout + done.stderr


def test_litellm_is_not_imported_until_somebody_asks() -> None:
    code = (
        "import sys, islands.llm.client, islands.llm.batch, islands.llm.bandit;"
        "sys.exit('litellm' in sys.modules or 'openai' in sys.modules or 'aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

"""How models are written, and what is said of those that cannot be read."""

from __future__ import annotations

import pytest
from support.llm_clients import spec

from db.errors import ConfigError
from islands.llm.models import ModelSpec, Price, Role, of_role, read_model, read_models
from islands.llm.provider import most_output_tokens, price_of


@pytest.mark.parametrize(
    ("text", "model_id", "weight"),
    [
        ("openai/gpt-4o", "openai/gpt-4o", 1.0),
        ("openai/gpt-4o:0.8", "openai/gpt-4o", 0.8),
        ("openai/gpt-4o:3", "openai/gpt-4o", 3.0),
        ("openai/gpt-4o@0.25", "openai/gpt-4o", 0.25),
        ("ollama/qwen2.5-coder:32b", "ollama/qwen2.5-coder:32b", 1.0),
        ("ollama/qwen2.5-coder:32b:0.5", "ollama/qwen2.5-coder:32b", 0.5),
        ("ollama/qwen2.5-coder:32b@2", "ollama/qwen2.5-coder:32b", 2.0),
        ("ollama/deepseek-r1:latest", "ollama/deepseek-r1:latest", 1.0),
        ("bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0", "bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0", 1.0),
        ("bedrock/anthropic.claude-v2:1", "bedrock/anthropic.claude-v2:1", 1.0),
        ("bedrock/anthropic.claude-v2:1@3", "bedrock/anthropic.claude-v2:1", 3.0),
        ("bedrock/us.meta.llama3-1-70b-instruct-v1:0:0.5", "bedrock/us.meta.llama3-1-70b-instruct-v1:0", 0.5),
        ("bedrock/amazon.titan-text-express-v1:0:8k", "bedrock/amazon.titan-text-express-v1:0:8k", 1.0),
        ("vertex_ai/claude-3-5-sonnet@20240620", "vertex_ai/claude-3-5-sonnet@20240620", 1.0),
        ("vertex_ai/claude-3-5-sonnet@20240620:0.3", "vertex_ai/claude-3-5-sonnet@20240620", 0.3),
        ("vertex_ai/text-bison@001", "vertex_ai/text-bison@001", 1.0),
        ("openrouter/meta-llama/llama-3.1-8b-instruct:free", "openrouter/meta-llama/llama-3.1-8b-instruct:free", 1.0),
        ("openai/ft:gpt-4o-mini-2024-07-18:org::7", "openai/ft:gpt-4o-mini-2024-07-18:org::7", 1.0),
        ("hosted_vllm/Qwen/Qwen2.5-Coder-32B-Instruct:1.5", "hosted_vllm/Qwen/Qwen2.5-Coder-32B-Instruct", 1.5),
        ("openai/gpt-4o:0", "openai/gpt-4o:0", 1.0),
        ("openai/gpt-4o:1000", "openai/gpt-4o:1000", 1.0),
        ("openai/gpt-4o:007", "openai/gpt-4o:007", 1.0),
    ],
)
def test_names_and_weights(text: str, model_id: str, weight: float) -> None:
    read = read_model(text)
    assert (read.model_id, read.weight) == (model_id, weight)


def test_settings_follow_the_name() -> None:
    text = (
        "hosted_vllm/qwen3:0.5,api_base=http://gpu7:8000/v1,role=executor,unpriced,temperature=0.7,max_output_tokens=99"
    )
    assert read_model(text) == ModelSpec(
        provider="hosted_vllm",
        name="qwen3",
        weight=0.5,
        role=Role.EXECUTOR,
        api_base="http://gpu7:8000/v1",
        is_unpriced=True,
        temperature=0.7,
        max_output_tokens=99,
    )
    assert read_model({"model": "openai/x:2", "usd_per_mtok_in": 1, "usd_per_mtok_out": 2}).weight == 2


@pytest.mark.parametrize(
    "given",
    [
        "",
        "gpt-4o",
        "openai/",
        "/gpt-4o",
        "openai/gpt 4o",
        "OpenAI/gpt-4o",
        "openai/:0.5",
        "openai/0.5:",
        "openai/x,",
        "openai/x,temperature",
        "openai/x,temperature=",
        "openai/x,colour=red",
        "openai/x,temperature=hot",
        "openai/x,temperature=nan",
        "openai/x,temperature=-1",
        "openai/x,role=boss",
        "openai/x,usd_per_mtok_in=1",
        "openai/x,usd_per_mtok_in=inf,usd_per_mtok_out=1",
        "openai/x,usd_per_mtok_in=1,usd_per_mtok_out=1,unpriced",
        "openai/x,max_output_tokens=0",
        "openai/x,api_base=localhost:8000",
        "openai/x,api_base=http://",
        "openai/x,api_base=http://me:secret@host/v1",
        "openai/x,api_base=http://host/v1?key=secret",
        {"weight": 1},
        {"model": 7},
        {"model": "openai/x", "weight": 0},
        {"model": "openai/x", "weight": float("nan")},
    ],
)
def test_what_cannot_be_read_is_an_error_with_a_hint(given: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model(given)  # type: ignore[arg-type]
    assert caught.value.hint and "\n" not in caught.value.message


def test_a_model_is_named_once_for_a_role() -> None:
    assert len(read_models(["openai/x,role=planner", "openai/x,role=executor"])) == 2
    assert len(read_models(["openai/x,api_base=http://a/v1", "openai/x,api_base=http://b/v1"])) == 2
    with pytest.raises(ConfigError, match="named twice"):
        read_models(["openai/x:0.5", "openai/x:0.7"])


def test_models_for_any_role_stand_in_where_a_role_has_none() -> None:
    planner, anybody = read_models(["openai/a,role=planner", "openai/b"])
    assert of_role((planner, anybody), Role.PLANNER) == (planner,)
    assert of_role((planner, anybody), Role.EXECUTOR) == (anybody,)
    assert of_role((planner,), Role.EXECUTOR) == ()


def test_prices_come_from_the_table_of_litellm_or_are_given() -> None:
    known = price_of(read_model("openai/gpt-4o"))
    assert known is not None and (known.usd_per_mtok_in, known.usd_per_mtok_out) == (2.5, 10.0)
    assert price_of(read_model("openai/gpt-4o,unpriced")) is None
    given = price_of(read_model("openai/gpt-4o,usd_per_mtok_in=1,usd_per_mtok_out=2"))
    assert given is not None and given.of(1_000_000, 500_000) == 2.0


@pytest.mark.parametrize(
    "text",
    ["openai/gpt-4o,api_base=https://eu.api.openai.com/v1", "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0"],
)
def test_the_table_knows_models_by_several_names(text: str) -> None:
    assert price_of(read_model(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "openai/nobody-knows-it",
        "ollama/my-own-model",
        "openai/gpt-4o,api_base=http://127.0.0.1:1/v1",
        "openai/gpt-4o,api_base=http://api.openai.com.example.org/v1",
    ],
)
def test_a_model_without_a_price_must_be_called_unpriced(text: str) -> None:
    assert price_of(read_model(text + ",unpriced")) is None
    with pytest.raises(ConfigError, match="no price is known") as caught:
        price_of(read_model(text))
    assert "unpriced" in caught.value.hint


def test_an_unknown_provider_is_named_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match="no provider 'opanai'") as caught:
        price_of(read_model("opanai/gpt-4o"))
    assert "openai" in caught.value.hint


def test_cached_tokens_have_a_price_of_their_own() -> None:
    price = Price(usd_per_mtok_in=10, usd_per_mtok_out=30, usd_per_mtok_cached=1)
    assert price.of(1000, 100, 600) == pytest.approx((400 * 10 + 600 * 1 + 100 * 30) / 1e6)
    assert price.of(1000, 0, 5000) == pytest.approx(1000 / 1e6)
    assert Price(usd_per_mtok_in=10, usd_per_mtok_out=30).of(1000, 0, 600) == pytest.approx(0.01)


def test_a_model_is_not_asked_for_more_than_it_can_write() -> None:
    assert most_output_tokens(read_model("openai/gpt-4o,max_output_tokens=999999")) == 16_384
    assert most_output_tokens(spec("http://127.0.0.1:1/v1", max_output_tokens=77)) == 77

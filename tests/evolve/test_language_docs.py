"""docs/language_models.md against the truth: providers, keys, addresses, prices, presets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from db.errors import ConfigError
from evolve.config import load_config, presets
from islands.llm.keys import Keys, take_keys
from islands.llm.models import ModelSpec, read_model, read_models
from islands.llm.provider import Provider, price_of

DOCS = Path(__file__).parents[2] / "docs" / "language_models.md"
PROVIDERS = {"openai", "anthropic", "gemini", "bedrock", "vertex_ai", "ollama_chat", "hosted_vllm"}


class Row(NamedTuple):
    """A row of the table of providers."""

    name: str
    model: ModelSpec
    variables: list[str]  # that hold keys
    address: str
    price: str


def rows() -> list[Row]:
    text = DOCS.read_text().partition("## Providers")[2].partition("## ")[0]
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [
        Row(name, read_model(model.strip("`")), re.findall(r"`([A-Z_]+)`", keys), address, price)
        for name, model, keys, address, price, *_ in lines[1:]
    ]


def test_every_provider_has_its_row() -> None:
    assert {row.model.provider for row in rows()} == PROVIDERS and len(rows()) == len(PROVIDERS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.model.provider)
def test_each_variable_of_a_row_is_taken_and_given_to_its_provider(row: Row) -> None:
    assert row.variables
    for name in row.variables:
        environment = {name: "marker-0123456789", "HOME": "/root"}
        keys = take_keys(environment)
        given = keys.for_call(row.model)
        found = {**given.arguments, **given.environment}
        assert environment == {"HOME": "/root"}, name
        assert "marker-0123456789" in found.values(), name


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.model.provider)
def test_prices_are_as_the_table_says(row: Row) -> None:
    assert row.price.startswith("known") == (price_of(row.model) is not None)
    assert ("unpriced" in row.price) == (row.model.is_unpriced or row.model.provider == "openai")


def test_a_key_that_is_missing_is_named_as_in_the_table() -> None:
    for row in rows():
        if row.model.provider in ("openai", "anthropic", "gemini"):
            with pytest.raises(ConfigError) as raised:
                Provider(Keys({})).check(row.model)
            assert row.variables[0] in raised.value.hint
        else:
            Provider(Keys({})).check(row.model)


def test_variables_of_addresses_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    served = next(row for row in rows() if row.model.provider == "hosted_vllm")
    nowhere = served.model.model_copy(update={"api_base": None})
    with pytest.raises(ConfigError, match="no address"):
        Provider(Keys({})).check(nowhere)
    (name,) = re.findall(r"`(\w+_API_BASE)`", served.address)
    monkeypatch.setenv(name, "http://127.0.0.1:8000/v1")
    Provider(Keys({})).check(nowhere)


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_start(name: str) -> None:
    config = load_config("softmax", preset=name)
    for spec in read_models(config.models):
        assert spec.is_unpriced or price_of(spec) is not None
    assert (config.llm.mode == "exchange") == (name == "air-gapped")


def test_every_preset_is_documented() -> None:
    text = (DOCS.parent / "configuration.md").read_text()
    assert [name for name in presets() if f"| `{name}` |" not in text] == []

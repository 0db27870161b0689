"""What a run's language models may cost, over all of its sittings."""

from __future__ import annotations

from db.llm_calls import LlmTotal
from evolve.config import load_config
from evolve.language import keys_of, spend_of
from islands.llm.models import read_model


def total(cost_usd: float | None, n_calls: int) -> LlmTotal:
    return LlmTotal(
        model="openai/x",
        operator="mutate",
        n_calls=n_calls,
        n_answered=n_calls,
        n_cut_off=0,
        n_tokens_in=100,
        n_tokens_out=10,
        cost_usd=cost_usd,
        seconds=1.0,
        mean_s=1.0,
    )


def test_what_earlier_sittings_spent_counts() -> None:
    spent = spend_of([total(0.5, 2), total(None, 3)])
    assert (spent.usd, spent.n_tokens, spent.n_calls) == (0.5, 220, 5)
    assert spend_of([]).n_calls == 0


def test_the_variable_that_a_model_names_holds_a_key_whatever_it_is_called() -> None:
    environ = {"LAB_LOGIN": "marker-0123456789", "HOME": "/root"}
    named = "openai/x,api_base=http://127.0.0.1:9/v1,unpriced,key_name=LAB_LOGIN"
    keys = keys_of(load_config("softmax", options={"models": [named]}), environ)
    assert environ == {"HOME": "/root"}
    assert keys.for_call(read_model(named)).arguments["api_key"] == "marker-0123456789"

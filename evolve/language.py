"""The language models of a run: a client for those that its configuration names, or for a recording."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path

from db.llm_calls import LlmCall, LlmTotal
from evolve.config import LanguageSettings, RunConfig
from islands.dialogues import ArmSpend
from islands.llm.budget import Limits, LlmBudget, Spend
from islands.llm.client import LlmClient, LlmSettings
from islands.llm.keys import Keys, take_keys
from islands.llm.models import read_models
from islands.llm.recording import Recorder, Recording


def has_models(config: RunConfig) -> bool:
    """Whether anybody is there to ask."""
    return bool(config.models or config.llm.replay)


def keys_of(config: RunConfig, environ: MutableMapping[str, str]) -> Keys:
    """Every key, taken out of an environment: what is called one, and what models name.

    Raises:
        ConfigError: a model that cannot be read.
    """
    return take_keys(environ, [spec.key_name for spec in read_models(config.models) if spec.key_name])


@contextlib.contextmanager
def without_keys(config: RunConfig) -> Iterator[None]:
    """Inside, the environment holds no key, so that no process that is started there has one. Raises as `keys_of`."""
    keys = keys_of(config, os.environ)
    try:
        yield
    finally:
        os.environ.update(keys.hand_over())


def open_client(config: RunConfig, keys: Keys, run_id: str, journal: Callable[[LlmCall], None]) -> LlmClient:
    """Whoever answers the questions of a run. `journal` is told every call, as it ends.

    Raises:
        ConfigError: a model that cannot be read, or a recording that cannot be read or written.
    """
    asked = config.llm
    return LlmClient(
        read_models(config.models),
        keys,
        settings=LlmSettings(n_tries=asked.n_tries, call_limit_s=asked.call_limit_s),
        budget=LlmBudget(limits_of(asked)),
        run_id=run_id,
        rng_seed=config.rng_seed,
        journal=journal,
        recorder=Recorder(Path(asked.record)) if asked.record else None,
        replay=Recording.read(Path(asked.replay)) if asked.replay else None,
    )


def spend_of(totals: Sequence[LlmTotal]) -> Spend:
    """What earlier sittings of a run spent: a budget is that of the run, however often it is resumed."""
    return Spend(
        usd=sum(total.cost_usd or 0.0 for total in totals),
        n_tokens=sum(total.n_tokens_in + total.n_tokens_out for total in totals),
        n_calls=sum(total.n_calls for total in totals),
    )


def shares_of(totals: Sequence[LlmTotal], n_islands: int) -> tuple[ArmSpend, ...]:
    """What earlier sittings paid each model for each operator: the share of one island."""
    return tuple(
        ArmSpend(
            model=total.model,
            operator=total.operator,
            n_calls=total.n_calls / n_islands,
            usd=None if total.cost_usd is None else total.cost_usd / n_islands,
            seconds=total.seconds / n_islands,
        )
        for total in totals
    )


def limits_of(asked: LanguageSettings) -> Limits:
    """What language models may cost a run."""
    return Limits(
        usd=asked.budget_usd, n_tokens=asked.budget_tokens, n_calls=asked.budget_calls, seconds=asked.budget_s
    )

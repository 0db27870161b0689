"""What language models were asked and what it came to: the library twin of `evolve llm`."""

from __future__ import annotations

from collections.abc import Sequence

from db.llm_calls import LlmCall, LlmTotal
from db.reading import ArchiveReader


def llm_totals(archive: ArchiveReader, run_id: str | None = None) -> list[LlmTotal]:
    """What calls came to for each model and operator, the dearest first: of one run or of all.

    Raises:
        NotFoundError: the archive holds no such run.
    """
    if run_id is not None:
        archive.run(run_id)
    return archive.llm_totals(run_id)


def llm_calls(archive: ArchiveReader, run_id: str | None = None, *, limit: int | None = None) -> list[LlmCall]:
    """Every call of a language model, the oldest first: of one run or of all, or the last `limit` of them.

    Raises:
        NotFoundError: the archive holds no such run.
    """
    if run_id is not None:
        archive.run(run_id)
    calls = archive.llm_calls(run_id)
    return calls if limit is None else calls[-limit:]


def sum_of(totals: Sequence[LlmTotal]) -> LlmTotal | None:
    """All totals as one, under the model "all"; None where nothing was asked. Dollars are those of priced models."""
    if not totals:
        return None
    n_calls = sum(total.n_calls for total in totals)
    seconds = sum(total.seconds for total in totals)
    priced = [total.cost_usd for total in totals if total.cost_usd is not None]
    return LlmTotal(
        model="all",
        operator="",
        n_calls=n_calls,
        n_answered=sum(total.n_answered for total in totals),
        n_cut_off=sum(total.n_cut_off for total in totals),
        n_tokens_in=sum(total.n_tokens_in for total in totals),
        n_tokens_out=sum(total.n_tokens_out for total in totals),
        cost_usd=sum(priced) if priced else None,
        seconds=seconds,
        mean_s=seconds / n_calls,
    )

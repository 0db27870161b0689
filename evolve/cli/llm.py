"""`evolve llm`: what language models were asked, and what it came to."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from db.llm_calls import LlmCall
from evolve.cli.console import Column, note, print_json, print_table
from evolve.cli.endings import guarded
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.llm import llm_calls, llm_totals, sum_of
from evolve.queries import reading

app = typer.Typer(help="List and sum the calls of language models.")

OfRun = Annotated[str | None, typer.Option("--run", help="Only the calls of this run.", metavar="RUN")]


@app.callback(invoke_without_command=True)
@guarded
def totals(
    context: typer.Context, run: OfRun = None, archive: Archive = DEFAULT_ARCHIVE, as_json: AsJson = False
) -> None:
    """Sum the calls of language models for each model and operator."""
    if context.invoked_subcommand is not None:
        return
    with reading(archive) as reader:
        found = llm_totals(reader, run)
    everything = sum_of(found)
    if as_json:
        print_json([total.model_dump(mode="json") for total in found])
    elif everything is None:
        note("no language model was asked")
    else:
        print_table([total.model_dump() for total in (*found, everything)], _TOTAL_COLUMNS)


@app.command("calls")
@guarded
def calls(
    run: OfRun = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The last N calls only.", metavar="N")] = None,
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """List the calls of language models, the oldest first."""
    with reading(archive) as reader:
        found = llm_calls(reader, run, limit=limit)
    if as_json:
        print_json([call.model_dump(mode="json") for call in found])
    elif not found:
        note("no language model was asked")
    else:
        print_table([_row(call) for call in found], _CALL_COLUMNS)


def _dollars(cost_usd: float) -> str:
    return f"${cost_usd:.4f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}"


_TOTAL_COLUMNS = [
    Column("model", "model"),
    Column("operator", "operator"),
    Column("n_calls", "calls", is_number=True),
    Column("n_answered", "answered", is_number=True),
    Column("n_cut_off", "cut off", is_number=True),
    Column("n_tokens_in", "tokens in", is_number=True),
    Column("n_tokens_out", "tokens out", is_number=True),
    Column("cost_usd", "cost", _dollars, is_number=True),
    Column("mean_s", "mean s", _seconds, is_number=True),
]
_CALL_COLUMNS = [
    Column("at", "at (UTC)"),
    Column("model", "model"),
    Column("operator", "operator"),
    Column("island", "island", is_number=True),
    Column("prompt_hash", "prompt", lambda prompt_hash: prompt_hash[:12], is_whole=True),
    Column("n_tokens_in", "tokens in", is_number=True),
    Column("n_tokens_out", "tokens out", is_number=True),
    Column("cost_usd", "cost", _dollars, is_number=True),
    Column("seconds", "s", _seconds, is_number=True),
    Column("outcome", "outcome"),
    Column("reason", "reason"),
]


def _row(call: LlmCall) -> dict[str, object]:
    moment = datetime.datetime.fromtimestamp(call.created_at, datetime.UTC)
    return {**call.model_dump(), "at": f"{moment:%Y-%m-%d %H:%M:%S}"}

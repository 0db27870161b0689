"""`evolve llm`: what language models were asked and what it came to; questions out in a file, answers back in one."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Annotated

import typer

from db.errors import ConfigError
from db.llm_calls import LlmCall
from evolve.cli.console import Column, note, print_json, print_table
from evolve.cli.endings import guarded
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson, archive_option
from evolve.llm import llm_calls, llm_totals, pending_prompts, sum_of, take_answers
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


@app.command("export")
@guarded
def export(
    run: Annotated[
        str, typer.Argument(help="The run.  [default: the last that waits]", show_default=False, metavar="RUN")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write them to this file.", metavar="FILE")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Of this model only: providers take a file each.", metavar="MODEL")
    ] = None,
    archive: Archive = DEFAULT_ARCHIVE,
) -> None:
    """Print the questions that wait, or write them to a file.

    The form is OpenAI Batch JSONL, which batch APIs and `vllm run-batch` take.
    """
    with reading(archive) as reader:
        prompts = pending_prompts(reader, run or None, model=model)
    if output is None:
        sys.stdout.write(prompts.text())
    else:
        prompts.write(output)
    for name, n in prompts.n_questions.items():
        note(f"{n} for {name}")
    if output is not None:
        command = f"evolve llm import {prompts.run_id} ANSWERS{archive_option(archive)}"
        note(f"wrote {output}; take its answers in with: {command}")


@app.command("import")
@guarded
def import_answers(
    given: Annotated[
        list[str],
        typer.Argument(
            help="The file of answers; before it the run, unless it is the last that waits.", metavar="ANSWERS"
        ),
    ],
    evaluations: Annotated[
        int | None,
        typer.Option(
            "--evaluations", min=0, help="Search on for N verdicts.  [default: what is budgeted]", metavar="N"
        ),
    ] = None,
    archive: Archive = DEFAULT_ARCHIVE,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
) -> None:
    """Take in answers, judge what they propose, and search on.

    Ends when new questions wait, or as the run is budgeted.
    """
    if len(given) > 2:
        raise ConfigError(f"expected a run and a file, got {len(given)} names", "write: evolve llm import RUN ANSWERS")
    run_id, file = given if len(given) == 2 else ("", given[0])
    taken = take_answers(archive, Path(file), run_id or None)
    for fault in taken.faults:
        note(f"line {fault.line}: {fault.reason}")
    note(f"{taken.n_answered} answered, {taken.n_waiting} still waiting")

    from evolve.cli.live import watching  # ray: seconds that the tables need not wait for
    from evolve.cli.summary import finish
    from evolve.run import resume_search

    with watching(quiet=quiet) as on_event:
        result = resume_search(str(archive), taken.run_id, n_more=evaluations, on_event=on_event)
    finish(result, archive=str(archive))


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
    Column("at", "at (UTC)", is_spare=True),
    Column("model", "model"),
    Column("operator", "operator"),
    Column("island", "island", is_number=True, is_spare=True),
    Column("prompt_hash", "prompt", lambda prompt_hash: prompt_hash[:12], is_whole=True, is_spare=True),
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

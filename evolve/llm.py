"""What language models were asked and what it came to, and questions that somebody carries to them.

The library twins of `evolve llm`, `evolve llm export` and `evolve llm import`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from db.archive import ProgramArchive
from db.errors import ConfigError, NotFoundError
from db.live import open_for_reading
from db.llm_calls import LlmCall, LlmTotal
from db.llm_questions import LlmQuestion, QuestionStatus, of_status
from db.reading import ArchiveReader
from db.records import Run
from islands.llm.batch import (
    ANSWERED_BEFORE,
    BatchAnswers,
    Fault,
    Pending,
    batch_lines,
    call_of,
    read_batch,
    write_batch,
)
from islands.llm.exchange import Completion, Failure, FailureKind, Outcome, Request
from islands.llm.models import ModelSpec
from islands.llm.provider import batch_price_of

WRITER_WAIT_S = 5.0
_N_TOLD = 3  # faults of a useless file


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


class Prompts(NamedTuple):
    """The questions of a run that wait for answers, as a batch file holds them."""

    run_id: str
    pending: tuple[Pending, ...]

    @property
    def n_questions(self) -> Mapping[str, int]:
        """How many there are, by model."""
        return Counter(one.spec.model_id for one in self.pending)

    def text(self) -> str:
        return batch_lines(self.pending)

    def write(self, path: Path) -> None:
        """Raises ConfigError where the file cannot be written."""
        write_batch(self.pending, path)


class Taken(NamedTuple):
    """What an answer file brought."""

    run_id: str
    n_answered: int  # by this file
    n_waiting: int  # that still wait
    faults: tuple[Fault, ...]  # lines of no use, in their order


def pending_prompts(archive: ArchiveReader, run_id: str | None = None, *, model: str | None = None) -> Prompts:
    """The prompts that wait for answers, in OpenAI's batch format: of a run, or of the last one that waits.

    Args:
        model: of this model only, by its id.

    Raises:
        NotFoundError: no such run, or none that waits, or nothing waits for that model.
    """
    run = _run_that_waits(archive, run_id)
    waiting = of_status(archive.llm_questions(run.run_id), QuestionStatus.WAITING)
    chosen = [one for one in waiting if model in (None, one.model)]
    if not chosen and waiting:
        raise NotFoundError(
            f"nothing waits for {model}", f"questions wait for {', '.join(sorted({one.model for one in waiting}))}"
        )
    if not chosen:
        raise _nothing_waits(run)
    return Prompts(run.run_id, tuple(_pending(one) for one in chosen))


def take_answers(path: Path, answers: Path, run_id: str | None = None) -> Taken:
    """Puts the answers of a file into the archive at `path`, each once; `resume_search` tells them to their islands.

    A question whose answer is missing, or came back as an error that may pass, waits on.

    Raises:
        NotFoundError: no such run, or none that waits.
        ConfigError: the file cannot be read, or answers nothing that waits.
        ArchiveBusyError: the run is going on.
    """
    with contextlib.closing(open_for_reading(path)) as reader:
        run = _run_that_waits(reader, run_id)
        questions = reader.llm_questions(run.run_id)
    waiting, answered = (of_status(questions, s) for s in (QuestionStatus.WAITING, QuestionStatus.ANSWERED))
    if not waiting and not answered:
        raise _nothing_waits(run)
    pending = {one.question_id: _pending(one, is_priced=True) for one in waiting}
    batch = read_batch(answers, list(pending.values()), {one.question_id for one in questions} - pending.keys())
    came = {name: batch.outcomes[name] for name in batch.lines}
    taken = {name: outcome for name, outcome in came.items() if _ends_waiting(outcome)}
    if not taken and not answered:
        raise _useless(answers, run, waiting, _told(batch))
    calls = [call_of(pending[name], outcome, run.run_id) for name, outcome in came.items()]
    with contextlib.closing(ProgramArchive.open(path, wait_s=WRITER_WAIT_S)) as archive:
        archive.take_answers({name: outcome.model_dump(mode="json") for name, outcome in taken.items()}, calls)
    return Taken(run.run_id, len(taken), len(waiting) - len(taken), _told(batch))


def _run_that_waits(archive: ArchiveReader, run_id: str | None) -> Run:
    run = archive.run(run_id) if run_id else archive.last_waiting_run()
    if run is None:
        raise NotFoundError(f"no run of {archive.path} waits for answers", _HOW_TO_WAIT)
    return run


_HOW_TO_WAIT = "questions are written down by: evolve run PROBLEM --model MODEL --set llm.mode=exchange"


def _nothing_waits(run: Run) -> NotFoundError:
    return NotFoundError(f"no question of run {run.run_id} waits for an answer", _HOW_TO_WAIT)


def _pending(one: LlmQuestion, *, is_priced: bool = False) -> Pending:
    spec = ModelSpec.model_validate(one.spec)
    price = batch_price_of(spec) if is_priced else None
    return Pending(one.question_id, Request.model_validate(one.request), spec, price)


def _ends_waiting(outcome: Outcome) -> bool:
    """Whether a question is done with: answered, or refused in a way that would be the same again."""
    return isinstance(outcome, Completion) or outcome.kind is FailureKind.BAD_REQUEST


def _told(batch: BatchAnswers) -> tuple[Fault, ...]:
    """Lines of no use, and lines that answer with an error."""
    failed = [
        Fault(line, f"{name}: {outcome.kind}: {outcome.reason}")
        for name, line in batch.lines.items()
        if isinstance(outcome := batch.outcomes[name], Failure)
    ]
    return tuple(sorted([*batch.faults, *failed]))


def _useless(answers: Path, run: Run, waiting: Sequence[LlmQuestion], faults: Sequence[Fault]) -> ConfigError:
    told = "; ".join(f"line {fault.line}: {fault.reason}" for fault in faults[:_N_TOLD])
    hint = told + ("; ..." if len(faults) > _N_TOLD else "") if faults else "it is empty"
    if any(fault.reason.endswith(ANSWERED_BEFORE) for fault in faults):
        hint = f"it was taken in before; what waits now is written by: evolve llm export {run.run_id}"
    return ConfigError(f"{answers} answers none of the {len(waiting)} questions of run {run.run_id} that wait", hint)

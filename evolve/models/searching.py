"""An ordinary search for one part of a model, or for the module itself, into the archive of all."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from db.errors import EvolveError, SeedError
from db.live import open_for_reading
from db.records import SEED, Evaluation, Problem, RunStatus
from evaluators.decomposition.classify import GAIN
from evolve.cluster import WorkerFailed, why_it_died
from evolve.config import RunConfig
from evolve.events import Event, Judged, OnEvent, RunResult, RunStarted
from evolve.failures import find_mendable, wrapped_in
from evolve.models.budget import Allotment, with_share
from evolve.models.improve import WHOLE
from evolve.models.records import Found, RunnerUp
from evolve.run import RESUME_WAIT_S, run_search

N_RUNNERS_UP = 3


def search_one(
    name: str, problem: Problem, allotment: Allotment, *, config: RunConfig, folder: Path, on_event: OnEvent
) -> Found:
    """What `run_search` finds for a problem within an allotment of the budget of `config`.

    Args:
        name: of the folder for its results, inside `folder`.

    A problem of which no first program works is an answer, and so is a search that fails: others go on.
    """
    is_whole = name == WHOLE
    fraction = allotment.share_of(Allotment(config.evaluations, config.time_s))
    own = config.model_copy(
        update={
            "problem": problem.name,
            "shapes": {},
            "out": str(folder / name),
            "evaluations": allotment.evaluations,
            "time_s": allotment.time_s,
            "llm": with_share(config.llm, fraction),
            "parts": "never",
            "judging": config.judging if is_whole else config.judging.model_copy(update={"baselines": ("compile",)}),
            "seed_programs": config.seed_programs if is_whole else (),
            "seed_problem": config.seed_problem if is_whole else "",
        }
    )
    tally = _Tally(on_event)
    try:
        result = run_search(own, problem=problem, on_event=tally)
    except SeedError as error:
        return tally.cut_short(error.message, has_failed=False)
    except (EvolveError, WorkerFailed, ExceptionGroup) as error:
        if not (reason := reason_of(error)):
            raise
        return tally.cut_short(reason, has_failed=True)
    return found_by(result, config.archive, is_whole=is_whole)


class _Tally:
    """Passes events on and counts the verdicts: a search that raises has no result to say how many there were."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._start = time.monotonic()
        self._run_id = ""
        self._n_judged = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._run_id = event.run.run_id
        self._n_judged += isinstance(event, Judged)
        self._on_event(event)

    def cut_short(self, reason: str, *, has_failed: bool) -> Found:
        """What there is to say of a search that found nothing, with what it spent."""
        return Found(
            run_id=self._run_id,
            n_judged=self._n_judged,
            elapsed_s=time.monotonic() - self._start,
            has_failed=has_failed,
            reason=reason,
        )


def reason_of(error: BaseException) -> str:
    """What ended a search, in a line: what the user can mend, or a worker that died; empty for a fault of evolve."""
    mendable = find_mendable(error)
    if mendable is not None:
        return " ".join(mendable.message.split())
    failed = next((e for e in wrapped_in(error) if isinstance(e, WorkerFailed)), None)
    return f"a worker failed: {why_it_died(failed)}" if failed is not None else ""


def found_by(result: RunResult, archive: str, *, is_whole: bool) -> Found:
    """What a search of a part found, or one of the module itself."""
    progress, best = result.progress, result.best
    spent = {
        "run_id": result.run.run_id,
        "n_judged": progress.n_judged,
        "elapsed_s": progress.elapsed_s,
        "is_interrupted": result.run.status is RunStatus.INTERRUPTED,
    }
    if best is None or best.verdict.latency is None:
        return Found(reason="no program was correct", **spent)
    over_baseline = best.verdict.latency.speedup  # one that may not replace it is no gain, and may be a loss
    over_baseline = over_baseline if result.replaces_baseline else min(1.0, over_baseline)
    speedup = over_baseline
    others: tuple[RunnerUp, ...] = ()
    if not is_whole:
        with contextlib.closing(open_for_reading(Path(archive), wait_s=RESUME_WAIT_S)) as reader:
            judged = reader.evaluations(result.run.run_id)
        speedup = speedup_over_seed(best, judged, result.problem.name)
        others = runners_up(best, judged, speedup)
    return Found(
        source=best.candidate.source,
        program_id=best.candidate.program_id,
        speedup=speedup,
        over_baseline=over_baseline,
        error_ratio=best.verdict.error_ratio,
        runners_up=others,
        reason="" if result.replaces_baseline else "its own baseline is not beaten",
        **spent,
    )


def speedup_over_seed(best: Evaluation, judged: list[Evaluation], problem: str) -> float:
    """How much faster than the problem's own first program, which is what the model runs now.

    Where that one did not pass: than the baseline.
    """
    assert best.verdict.latency is not None
    seeds = [e.verdict.latency for e in judged if _is_own_seed(e, problem) and e.verdict.latency]
    if not seeds:
        return best.verdict.latency.speedup
    return min(latency.device_us for latency in seeds) / best.verdict.latency.device_us


def runners_up(best: Evaluation, judged: list[Evaluation], speedup: float) -> tuple[RunnerUp, ...]:
    """Programs unlike the best one that gain as well: the next fastest, and of the others the most exact.

    Args:
        judged: everything that the search judged.
        speedup: of the best one over the kernels that the model runs now.
    """
    assert best.verdict.latency is not None
    fastest_us = best.verdict.latency.device_us
    apart = _apart_from(best, judged)
    found = [_runner_up(one, speedup * fastest_us / us) for one in apart if (us := _device_us(one)) is not None]
    gaining = sorted((one for one in found if one.speedup > GAIN), key=lambda one: -one.speedup)
    next_fastest, others = gaining[: N_RUNNERS_UP - 1], gaining[N_RUNNERS_UP - 1 :]
    exact = [one for one in others if one.error_ratio is not None]
    return (*next_fastest, *sorted(exact, key=lambda one: one.error_ratio or 0.0)[:1])


def _apart_from(best: Evaluation, judged: list[Evaluation]) -> list[Evaluation]:
    """Correct programs of the best one's class, each once: no other text of the same work, and none that was ever
    refused."""
    refused = {one.verdict.program_id for one in judged if not one.verdict.is_correct}
    known = {best.verdict.program_id, best.verdict.fingerprint}
    found = []
    for one in sorted(judged, key=lambda one: one.verdict.error_ratio is None):  # judged twice: the one that says more
        its = {one.verdict.program_id, one.verdict.fingerprint} - {""}
        if its & (known | refused) or one.verdict.duplicate_of or one.verdict.precision is not best.verdict.precision:
            continue
        known |= its
        found.append(one)
    return found


def _device_us(evaluation: Evaluation) -> float | None:
    return evaluation.verdict.latency.device_us if evaluation.verdict.latency else None


def _runner_up(evaluation: Evaluation, speedup: float) -> RunnerUp:
    verdict = evaluation.verdict
    return RunnerUp(
        source=evaluation.candidate.source,
        program_id=verdict.program_id,
        speedup=speedup,
        over_baseline=verdict.latency.speedup if verdict.latency else None,
        error_ratio=verdict.error_ratio,
    )


def _is_own_seed(evaluation: Evaluation, problem: str) -> bool:
    lineage = evaluation.candidate.lineage
    return lineage.operator == SEED and lineage.seeded_from == problem

"""One search from its configuration to its result. Start here to read how the rooms fit together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from db.errors import ClusterError, NotFoundError, SeedError
from db.live import open_for_reading
from db.llm_calls import LlmCall, LlmTotal
from db.profile import Profile
from db.records import CONFIRM, DeviceKind, Evaluation, LatencyKind, Problem, Run, RunStatus, Verdict
from evaluators.problems import load_problem
from evaluators.report import EvaluatorReport
from evolve import conversations
from evolve.advice import Advice
from evolve.beside import beside
from evolve.budget import Budget
from evolve.cluster import answer, connected
from evolve.config import RunConfig, make_config
from evolve.counters import CounterQueue, revised
from evolve.crew import Crew
from evolve.device import resolve_device
from evolve.events import CrewChanged, Event, Interrupted, OnEvent, RunEnded, RunResult, RunStarted
from evolve.exchange import WAITS, Exchange, Offer, is_exchanged, offers_of
from evolve.judging import JudgePool
from evolve.knowledge import collect_knowledge
from evolve.language import has_models, keys_of, limits_of, open_client, shares_of, spend_of
from evolve.llm import sum_of
from evolve.ordered import digest_of
from evolve.output import write_results
from evolve.preflight import check_start, wait_for_archive
from evolve.progress import ProgressMeter
from evolve.recruiting import recruiting
from evolve.reflections import collect_taught
from evolve.search import Search
from evolve.seeding import as_it_began, collect_seeds, seeds_again, with_seeds, with_what_is_there
from evolve.stopping import ROOFLINE, Patience
from islands.dialogues import Brief, DialogueSettings, Question
from islands.knowledge import PriorKnowledge
from islands.llm.budget import LlmBudget
from islands.llm.client import LlmClient
from islands.llm.keys import Keys
from islands.llm.models import read_models
from islands.migration import make_topology
from islands.reflection import Taught
from islands.seed import Seed

RESUME_WAIT_S = 90.0  # what the actors of a killed driver may take to let go of the archive
BREAK_S = 300.0  # no candidate takes so long: nobody was judging
N_CONFIRMED = 3
N_HANGING = 2  # calls in a row that may take all of their time before a first program is given up
INTERRUPTED = "interrupted"


def ignore(event: Event) -> None:
    """An `on_event` that watches nothing."""


def run_search(config: RunConfig, *, problem: Problem | None = None, on_event: OnEvent = ignore) -> RunResult:
    """Search, and return when the budget is spent or somebody interrupts.

    Args:
        problem: the problem itself, in the place of the one that the configuration names.

    Raises:
        EvolveError: something that the user can mend; nothing that was judged is lost.
    """
    problem = problem or load_problem(config.problem, sizes=config.shapes)
    device = resolve_device(config.device, cluster_address=config.cluster.address)
    seeds = collect_seeds(config, problem)
    return _go(_Start(config, with_seeds(problem, seeds), device, seeds), on_event)


def resume_search(
    archive: str,
    run_id: str = "",
    *,
    n_more: int | None = None,
    cluster_address: str | None = None,
    on_event: OnEvent = ignore,
) -> RunResult:
    """Continue a run where its archive says it was; the last unfinished one unless named.

    Waits for the archive while the actors of a killed driver still hold it. With `n_more` the search goes on for so
    many verdicts, whatever its budget had left; with `cluster_address` on another Ray cluster than it began on.

    Raises:
        NotFoundError: no such run, or none that is unfinished.
        EvolveError: as `run_search`.
    """
    with contextlib.closing(open_for_reading(Path(archive), wait_s=RESUME_WAIT_S)) as reader:
        run = reader.run(run_id) if run_id else reader.last_unfinished_run()
        if run is None:
            raise NotFoundError(f"{archive} has no unfinished run", _what_to_resume(archive, reader.last_waiting_run()))
        config, judged = make_config({**run.config, "archive": archive}), reader.evaluations(run.run_id)
        if cluster_address is not None:
            cluster = config.cluster.model_copy(update={"address": cluster_address})
            config = config.model_copy(update={"cluster": cluster})
        problem = as_it_began(reader.problem(run.problem_id), judged)
        totals = reader.llm_totals(run.run_id)
        elapsed_s = _elapsed_s(run, judged) if totals else 0.0
    if n_more is not None:
        n_judged = sum(e.candidate.lineage.operator != CONFIRM for e in judged)
        config = config.model_copy(update={"evaluations": n_judged + n_more, "time_s": None})
    config, gone = with_what_is_there(config)
    if gone:
        on_event(CrewChanged(what=f"goes on without what is no longer there: {', '.join(gone)}"))
    seeds = seeds_again(config, problem, judged)
    start = _Start(config, with_seeds(problem, seeds), run.device, seeds, run, totals, elapsed_s)
    return _go(start, on_event)


def _what_to_resume(archive: str, waiting: Run | None) -> str:
    if waiting is not None:
        return f"{waiting.run_id} waits for answers: evolve llm import {waiting.run_id} ANSWERS --archive {archive}"
    return "name a run to continue one that ended; `evolve query 'SELECT run_id, status FROM runs'` lists them"


@dataclass(frozen=True)
class _Start:
    """What a search starts from. A resumed one has its `run`, what it asked of language models, and for how long."""

    config: RunConfig
    problem: Problem
    device: DeviceKind
    seeds: list[Seed]
    run: Run | None = None
    asked: Sequence[LlmTotal] = ()
    elapsed_s: float = 0.0


def _go(start: _Start, on_event: OnEvent) -> RunResult:
    """What can be found out without Ray comes first."""
    is_free = check_start(start.config, start.device, may_be_held=start.run is not None)
    keys = keys_of(start.config, os.environ)  # no process that starts from here on has them
    try:
        return _go_without_keys(start, keys, on_event, is_free)
    finally:
        os.environ.update(keys.hand_over())  # they are the caller's; nothing of ours is alive any more


def _go_without_keys(start: _Start, keys: Keys, on_event: OnEvent, is_free: bool) -> RunResult:
    run_id = start.run.run_id if start.run else new_run_id()
    wait_s = 0.0 if is_free else RESUME_WAIT_S
    knowing = beside(lambda: _known(start, keys, run_id, wait_s))
    if is_free:
        knowing.result()  # else Ray starts while the actors of a killed driver let go of the archive
    with connected(start.config.cluster.address, needs_gpu=start.device is DeviceKind.CUDA):
        prior, models = knowing.result()
        return _to_its_end(lambda: _search(start, prior, models, run_id, on_event))


def _to_its_end(search: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
    """Runs a search in this thread; beside it where a loop runs here already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(search())
    return beside(lambda: asyncio.run(search())).result()


def _known(start: _Start, keys: Keys, run_id: str, wait_s: float) -> tuple[PriorKnowledge, _Models]:
    """What the run begins with, and whom it may ask, once its archive is free."""
    if wait_s:
        wait_for_archive(start.config.archive, wait_s)
    # a resumed run knows what it knew at its start, and its own attempts come back one by one
    started_at = start.run.started_at if start.run else time.time()
    prior = collect_knowledge(start.config, start.problem.name, _latency_kind(start.device), started_at)
    models = _open_models(start, keys, run_id)
    if models.client is not None or models.offers:
        models = models._replace(taught=collect_taught(start.config, start.problem, started_at))
    return prior, models


class _Models(NamedTuple):
    """Whom to ask, or for whom to write questions down, if anybody; and the calls that are not in the archive yet."""

    client: LlmClient | None
    offers: tuple[Offer, ...]
    calls: list[LlmCall]
    taught: Taught = Taught()  # what reflection and the judge taught before the run


def _open_models(start: _Start, keys: Keys, run_id: str) -> _Models:
    config = start.config
    if is_exchanged(config):
        return _Models(None, tuple(offers_of(config)), [])
    calls: list[LlmCall] = []
    client = open_client(config, keys, run_id, calls.append) if has_models(config) else None
    if client is not None:
        client.budget.resume(spend_of(start.asked), start.elapsed_s)
    return _Models(client, (), calls)


async def _search(start: _Start, prior: PriorKnowledge, models: _Models, run_id: str, on_event: OnEvent) -> RunResult:
    if models.client is not None:
        await models.client.prepare()
    async with Crew(
        start.config, start.problem, start.device, run_id, prior, lambda what: on_event(CrewChanged(what=what))
    ) as crew:
        report = await crew.open()
        run = _continued(start.run, report, on_event) if start.run else _new_run(start, run_id, report)
        run = run.model_copy(update={"versions": {**run.versions, "isolation": report.confinement}})
        await answer(crew.archive.add_problem.remote(start.problem))
        await answer((crew.archive.update_run if start.run else crew.archive.add_run).remote(run))
        on_event(_started(start, run, report))
        session = _Session(start.config, run, crew, report, models.calls, on_event)
        if models.client is not None or models.offers:
            await session.talk(start, models)
        with _interruptible(session.budget, on_event):
            await session.drive(start.seeds)
        result = await session.finish(start.problem)
    on_event(RunEnded(result=result))
    return result


class _Session:
    """One sitting of a run: its budget, its counts and its loop."""

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        crew: Crew,
        report: EvaluatorReport,
        calls: list[LlmCall],
        on_event: OnEvent,
    ) -> None:
        self._config = config
        self._run = run
        self._crew = crew
        self._archive = crew.archive
        self.budget = Budget(config.evaluations, config.time_s)
        self._meter = ProgressMeter(self.budget)
        self._evaluators = crew.evaluators
        self._judge = JudgePool(
            preparers=crew.preparers,
            evaluators=self._evaluators,
            archive=crew.archive,
            report=report,
            precision=config.precision,
            pre_rank=config.judging.pre_rank if run.device is DeviceKind.CUDA else 0.0,
        )
        self._report = report
        self._hardware = report.hardware
        self._islands = crew.islands
        self._calls = calls
        self._advice = Advice(
            run.run_id, crew.archive, crew.islands, lambda: self._meter.best, is_judging=config.llm.judge
        )
        self._client: LlmClient | None = None
        self._chains_per_island = crew.chains_per_island
        self._exchange: Exchange | None = None
        is_measured = run.latency_kind is LatencyKind.MEASURED
        self._counters = CounterQueue(self._evaluators, config.counters, self._recell) if is_measured else None
        self._search = Search(
            islands=crew.islands,
            judge=self._judge,
            archive=crew.archive,
            budget=self.budget,
            meter=self._meter,
            topology=make_topology(config.topology),
            rng=random.Random(config.rng_seed),
            on_event=on_event,
            chains_per_island=crew.chains_per_island,
            batch=config.batch,
            stop_when_stagnant=config.stop_when_stagnant,
            counters=self._counters,
            stop_at_roofline=config.stop_at_roofline,
            window=config.window,
            patience=Patience(config.search.stagnation_window * config.islands, N_HANGING * config.llm.call_limit_s),
        )

    async def talk(self, start: _Start, models: _Models) -> None:
        """Let language models propose as well: they are asked, or questions are written down for them."""
        brief = Brief(
            run_id=self._run.run_id,
            problem=start.problem,
            hardware=self._hardware,
            precision=self._config.precision,
            allowed_operations=self._report.baseline.extern_ops,
            triton_version=self._report.versions.get("triton", ""),
            models=read_models(self._config.models),
            spent=shares_of(start.asked, len(self._islands)),
        )
        settings = DialogueSettings.model_validate(
            {name: getattr(self._config.llm, name) for name in DialogueSettings.model_fields}
        )
        pairs = zip(self._islands, await self._advice.taught(models.taught), strict=True)
        await asyncio.gather(*(answer(island.talk.remote(brief, settings, taught)) for island, taught in pairs))
        if models.client is not None:
            self._client = models.client
            self._search.correspond(models.client, settings.in_flight, self._hear)
            await conversations.take_up(self._archive, self._run.run_id, self._islands, is_once=True)
            return
        budget = LlmBudget(limits_of(self._config.llm))
        budget.resume(spend_of(start.asked), start.elapsed_s)
        self._exchange = Exchange(
            self._run.run_id,
            models.offers,
            budget,
            archive=self._archive,
            islands=self._islands,
            rng_seed=self._config.rng_seed,
        )
        await self._exchange.take_up()

    async def _hear(self, question: Question, *_: object) -> None:
        """A model answered, or failed to."""
        await self._keep_calls()
        await self._advice.hear(question)

    async def _keep_calls(self) -> None:
        """Put what was called since the last time into the archive."""
        calls, self._calls[:] = list(self._calls), []
        if calls:
            await answer(self._archive.add_llm_calls.remote(calls))

    async def drive(self, seeds: list[Seed]) -> None:
        """Take up what was judged before, judge the first programs, and search."""
        judged: list[Evaluation] = await answer(self._archive.evaluations.remote(self._run.run_id))
        self._judge.remember([e.verdict for e in judged])
        await self._search.restore(judged, elapsed_s=_elapsed_s(self._run, judged))
        await self._seed(seeds)
        if self._exchange is not None:
            settle, n_at_once = self._search.settle, self._chains_per_island
            await self._exchange.hear(settle, n_at_once=n_at_once, is_over=lambda: self._is_interrupted)
            await self._advice.take_in()
        async with recruiting(self._crew, self._search):
            await self._search.run()
        self._busy_shares = self._evaluators.busy_shares
        if self._run.latency_kind is LatencyKind.MEASURED and not self._is_interrupted:  # a model never wavers
            await self._search.confirm(N_CONFIRMED)
        if self._client is not None and not self._is_interrupted:
            left_s = self.budget.time_left_s
            await self._advice.ask_last(self._client, lambda: self._is_interrupted, reflect_s=left_s)

    async def _recell(self, read: list[tuple[Evaluation, Profile]]) -> list[Verdict]:
        """Give programs the profile that counters say."""
        verdicts = [revised(evaluation, profile, self._hardware) for evaluation, profile in read]
        await self._search.recell(verdicts)
        return verdicts

    async def _seed(self, seeds: list[Seed]) -> None:
        """Where no first program works the run is over: it would not be better another time."""
        try:
            await self._search.seed(seeds)
        except SeedError as error:
            self.budget.stop(error.message)
            await self._close_run()
            raise

    async def finish(self, problem: Problem) -> RunResult:
        """Close the run in the archive and write what people take home."""
        await self._keep_calls()
        if self._client is not None:
            await conversations.keep(self._archive, self._run.run_id, self._islands)
        n_waiting = await self._write_down()
        run = await self._close_run(n_waiting)
        best = self._meter.best
        result = RunResult(
            run=run,
            problem=problem,
            progress=await self._search.look(),
            evaluators_busy=self._busy_shares,
            counters=self._counters.report if self._counters else None,
            best=best,
            replaces_baseline=best is not None and best.verdict.replaces_baseline,
            asked=sum_of(await answer(self._archive.llm_totals.remote(self._run.run_id))),
            n_waiting=n_waiting,
            digest=await self._digest() if self._config.window else "",
        )
        folder = Path(self._config.out or f"evolve-out/{run.run_id}")
        return await asyncio.to_thread(write_results, result, Path(self._config.archive), folder)

    async def _digest(self) -> str:
        return digest_of(await answer(self._archive.evaluations.remote(self._run.run_id)))

    @property
    def _is_interrupted(self) -> bool:
        return self.budget.stop_reason == INTERRUPTED

    async def _write_down(self) -> int:
        """What islands ask next, where questions are carried; how many wait for an answer."""
        if self._exchange is None:
            return 0
        await self._advice.look()
        if self._is_interrupted:
            return await self._exchange.write_down(None)
        return await self._exchange.write_down(0 if self.budget.stop_reason == ROOFLINE else self._config.llm.in_flight)

    async def _close_run(self, n_waiting: int = 0) -> Run:
        status, reason = RunStatus.FINISHED, self.budget.stop_reason or "nothing new to propose"
        if self._is_interrupted:
            status = RunStatus.INTERRUPTED
        elif n_waiting:
            status, reason = RunStatus.WAITING, WAITS
        run = self._run.model_copy(update={"status": status, "finished_at": time.time(), "stop_reason": reason})
        await answer(self._archive.update_run.remote(run))
        return run


def new_run_id() -> str:
    """When it began, and four random digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"


def _new_run(start: _Start, run_id: str, report: EvaluatorReport) -> Run:
    return Run(
        run_id=run_id,
        problem_id=start.problem.problem_id,
        rng_seed=start.config.rng_seed,
        device=start.device,
        hardware=report.hardware,
        precision=start.config.precision,
        latency_kind=_latency_kind(start.device),
        config=start.config.model_dump(mode="json"),
        versions=report.versions,
        started_at=time.time(),
    )


def _latency_kind(device: DeviceKind) -> LatencyKind:
    return LatencyKind.MEASURED if device is DeviceKind.CUDA else LatencyKind.MODELLED


def _continued(run: Run, report: EvaluatorReport, on_event: OnEvent) -> Run:
    """Raises `ClusterError` on another GPU; other software is told, because latencies may not be what they were."""
    if run.hardware.hardware_id != report.hardware.hardware_id:
        raise ClusterError(
            f"{run.run_id} began on {run.hardware.name}, and here is {report.hardware.name}: latencies of different "
            "GPUs are never compared",
            "start a new run from what it found: evolve run PROBLEM --seed-from ARCHIVE --archive ANOTHER",
        )
    changed = [
        f"{name} {run.versions.get(name, 'none')} then, {version} now"
        for name, version in sorted(report.versions.items())
        if run.versions.get(name) != version
    ]
    if changed:
        on_event(CrewChanged(what=f"other software than this run began with: {'; '.join(changed)}"))
    return run.model_copy(update={"status": RunStatus.RUNNING, "finished_at": None, "stop_reason": ""})


def _elapsed_s(run: Run, judged: list[Evaluation]) -> float:
    """Wall-clock of the earlier sittings, up to the last verdict; a long silence was a break between two of them."""
    times = sorted([run.started_at, *(e.created_at for e in judged)])
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return sum(gap for gap in gaps if gap < BREAK_S)


def _started(start: _Start, run: Run, report: EvaluatorReport) -> RunStarted:
    times = {str(t.name): t.device_us for t in report.baseline.times if t.device_us is not None}
    return RunStarted(
        run=run,
        problem=start.problem,
        baseline_name=report.baseline.name,
        baselines_us=times,
        resumed=start.run is not None,
        isolation=report.isolation,
        missing=report.missing,
    )


@contextlib.contextmanager
def _interruptible(budget: Budget, on_event: OnEvent) -> Iterator[None]:
    """Let the first Ctrl-C end the run in order; a second one ends it at once."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        budget.stop(INTERRUPTED)
        on_event(Interrupted())

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, interrupt)
    except (NotImplementedError, ValueError, RuntimeError):  # not in the main thread: the caller interrupts
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
